#include "base/machine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <numeric>

#include "support.h"

namespace picolm {
namespace {

// A tree of files below a temporary folder that stands for the whole machine.
class Tree {
  public:
    const std::string& root() const { return folder_.path(); }
    void put(const std::string& path, const std::string& text) {
        const std::filesystem::path full = folder_.path() + path;
        std::filesystem::create_directories(full.parent_path());
        testing::write_text(full, text);
    }
    void put_cpu(int cpu, const std::string& siblings, const std::string& source, int speed) {
        const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
        if (!siblings.empty()) put(folder + "/topology/thread_siblings_list", siblings + "\n");
        if (!source.empty()) put(folder + "/" + source, std::to_string(speed) + "\n");
    }

  private:
    testing::TempDir folder_;
};

constexpr const char* kCapacity = "cpu_capacity";
constexpr const char* kFrequency = "cpufreq/cpuinfo_max_freq";

std::vector<uint32_t> first_cpus(uint32_t n) {
    std::vector<uint32_t> cpus(n);
    std::iota(cpus.begin(), cpus.end(), 0u);
    return cpus;
}

TEST(CpuFactsTest, WithoutAnyInformationEveryCpuIsACore) {
    Tree tree;
    const CpuFacts facts = read_cpu_facts(tree.root(), first_cpus(6));
    EXPECT_EQ(facts.allowed, first_cpus(6));
    EXPECT_EQ(facts.n_cores, 6u);
    EXPECT_EQ(facts.n_fast_cores, 6u);
    EXPECT_FALSE(facts.quota);
    EXPECT_EQ(facts.default_threads(), 6u);
}

TEST(CpuFactsTest, SiblingsCountOnce) {
    Tree tree;
    for (int i = 0; i < 8; ++i) {
        const int core = i % 4;
        tree.put_cpu(i, std::to_string(core) + "," + std::to_string(core + 4), kFrequency,
                     3'500'000);
    }
    EXPECT_EQ(read_cpu_facts(tree.root(), first_cpus(8)).default_threads(), 4u);
    // The mask may hold both siblings of one core, or only one of several.
    EXPECT_EQ(read_cpu_facts(tree.root(), std::vector<uint32_t>{1, 5}).default_threads(), 1u);
    EXPECT_EQ(read_cpu_facts(tree.root(), std::vector<uint32_t>{1, 6, 7}).default_threads(), 3u);
}

TEST(CpuFactsTest, BigLittleByCapacity) {
    Tree tree;  // four slow, four fast, as on an RK3588
    for (int i = 0; i < 8; ++i) tree.put_cpu(i, std::to_string(i), kCapacity, i < 4 ? 530 : 1024);
    const CpuFacts facts = read_cpu_facts(tree.root(), first_cpus(8));
    EXPECT_EQ(facts.n_cores, 8u);
    EXPECT_EQ(facts.n_fast_cores, 4u);
    // Confined to the slow ones, they are the best there are.
    EXPECT_EQ(read_cpu_facts(tree.root(), first_cpus(3)).default_threads(), 3u);
    EXPECT_EQ(read_cpu_facts(tree.root(), std::vector<uint32_t>{0, 1, 2, 7}).default_threads(), 1u);
}

TEST(CpuFactsTest, HybridWithSiblingsByFrequency) {
    Tree tree;  // two fast cores of two threads each, one of them a favoured one; four slow cores
    for (int i = 0; i < 4; ++i)
        tree.put_cpu(i, i < 2 ? "0-1" : "2-3", kFrequency, i < 2 ? 5'200'000 : 5'000'000);
    for (int i = 4; i < 8; ++i) tree.put_cpu(i, std::to_string(i), kFrequency, 3'900'000);
    const CpuFacts facts = read_cpu_facts(tree.root(), first_cpus(8));
    EXPECT_EQ(facts.n_cores, 6u);
    EXPECT_EQ(facts.n_fast_cores, 2u);
}

TEST(CpuFactsTest, ExactlyEightyPercentIsFast) {
    Tree tree;
    const int speeds[] = {1000, 800, 799};
    for (int i = 0; i < 3; ++i) tree.put_cpu(i, std::to_string(i), kCapacity, speeds[i]);
    EXPECT_EQ(read_cpu_facts(tree.root(), first_cpus(3)).n_fast_cores, 2u);
}

TEST(CpuFactsTest, ACoreIsAsFastAsItsFastestSibling) {
    Tree tree;
    tree.put_cpu(0, "0,2", kFrequency, 5'000'000);
    tree.put_cpu(1, "1", kFrequency, 5'000'000);
    tree.put_cpu(2, "0,2", kFrequency, 3'000'000);
    EXPECT_EQ(read_cpu_facts(tree.root(), first_cpus(3)).n_fast_cores, 2u);
}

TEST(CpuFactsTest, SpeedsKnownForSomeOnlyAreIgnored) {
    Tree zero;
    zero.put_cpu(0, "0", kCapacity, 1024);
    zero.put_cpu(1, "1", kCapacity, 0);
    EXPECT_EQ(read_cpu_facts(zero.root(), first_cpus(2)).n_fast_cores, 2u);
    Tree tree;
    tree.put_cpu(0, "0", kCapacity, 1024);
    tree.put_cpu(1, "1", "", 0);
    tree.put_cpu(2, "2", kCapacity, 0);
    EXPECT_EQ(read_cpu_facts(tree.root(), first_cpus(3)).n_fast_cores, 3u);
}

const char* const kMountV2 =
    "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(CgroupTest, V2QuotaIsTheSmallestOfAllAncestors) {
    Tree tree;
    tree.put("/proc/self/mountinfo", kMountV2);
    tree.put("/proc/self/cgroup", "0::/user.slice/app\n");
    tree.put("/sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
    tree.put("/sys/fs/cgroup/user.slice/app/cpu.max", "max 100000\n");
    CpuFacts facts = read_cpu_facts(tree.root(), first_cpus(8));
    ASSERT_TRUE(facts.quota);
    EXPECT_EQ(*facts.quota, 2.5);
    EXPECT_EQ(facts.default_threads(), 2u);
    tree.put("/sys/fs/cgroup/user.slice/app/cpu.max", "30000 100000\n");
    facts = read_cpu_facts(tree.root(), first_cpus(8));
    EXPECT_EQ(*facts.quota, 0.3);
    EXPECT_EQ(facts.default_threads(), 1u);  // never 0
    tree.put("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    tree.put("/sys/fs/cgroup/user.slice/app/cpu.max", "max 100000\n");
    EXPECT_FALSE(read_cpu_facts(tree.root(), first_cpus(8)).quota);
}

const char* const kMountV1 =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

TEST(CgroupTest, V1Quota) {
    Tree tree;
    tree.put("/proc/self/mountinfo", kMountV1);
    tree.put("/proc/self/cgroup", "9:cpuset:/other\n4:memory:/m\n3:cpu,cpuacct:/box\n");
    tree.put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    tree.put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    EXPECT_FALSE(read_cpu_facts(tree.root(), first_cpus(8)).quota);
    tree.put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "400000\n");
    tree.put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    const CpuFacts facts = read_cpu_facts(tree.root(), first_cpus(8));
    ASSERT_TRUE(facts.quota);
    EXPECT_EQ(*facts.quota, 4.0);
    EXPECT_EQ(facts.default_threads(), 4u);
    EXPECT_EQ(read_cpu_facts(tree.root(), first_cpus(3)).default_threads(), 3u);
}

TEST(CgroupTest, ContainerSeesThePathOfTheHost) {
    Tree tree;
    tree.put("/proc/self/mountinfo",
             "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    tree.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
    tree.put("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "134217728\n");
    tree.put("/sys/fs/cgroup/memory/d/inner/memory.limit_in_bytes", "1000\n");
    for (const auto& [path, limit] : std::vector<std::pair<std::string, uint64_t>>{
             {"/docker/abc", 268435456},
             {"/docker/abc/inner", 134217728},
             {"/docker/abcd/inner", 268435456},  // not below the mount's root
             {"/../../elsewhere", 268435456}}) {
        tree.put("/proc/self/cgroup", "4:memory:" + path + "\n");
        EXPECT_EQ(read_memory_facts(tree.root()).limit, limit) << path;
    }
}

TEST(CgroupTest, PathAboveTheNamespaceStaysBelowTheMount) {
    Tree tree;
    tree.put("/proc/self/mountinfo", kMountV2);
    tree.put("/proc/self/cgroup", "0::/../other\n");
    tree.put("/sys/fs/cgroup/memory.max", "2000\n");
    tree.put("/sys/fs/other/memory.max", "1000\n");
    EXPECT_EQ(read_memory_facts(tree.root()).limit, 2000u);
}

TEST(MemoryFactsTest, Meminfo) {
    Tree tree;
    tree.put(
        "/proc/meminfo",
        "MemTotal:        8000000 kB\nMemFree:          100000 kB\nMemAvailable:    5000000 kB\n"
        "Buffers:            1000 kB\nCached:          2000000 kB\nSwapCached:   7 kB\n");
    MemoryFacts facts = read_memory_facts(tree.root());
    EXPECT_EQ(facts.total, 8000000u * uint64_t{1024});
    EXPECT_EQ(facts.available, 5000000u * uint64_t{1024});
    EXPECT_FALSE(facts.limit);
    EXPECT_FALSE(facts.limit_free);
    EXPECT_EQ(facts.usable(), facts.available);
    tree.put(
        "/proc/meminfo",
        "MemTotal: 800 kB\nMemFree: 100 kB\nBuffers: 10 kB\nCached: 200 kB\nSwapCached: 7 kB\n");
    EXPECT_EQ(read_memory_facts(tree.root()).available, 310u * 1024);
}

TEST(MemoryFactsTest, V2LimitAndWhatIsLeft) {
    Tree tree;
    tree.put("/proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 5000000 kB\n");
    tree.put("/proc/self/mountinfo", kMountV2);
    tree.put("/proc/self/cgroup", "0::/a/b\n");
    tree.put("/sys/fs/cgroup/a/memory.max", "1000000000\n");
    tree.put("/sys/fs/cgroup/a/memory.current", "950000000\n");
    tree.put("/sys/fs/cgroup/a/memory.stat",
             "anon 800000000\nfile 150000000\ninactive_file 100000000\nactive_file 30000000\n");
    tree.put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    tree.put("/sys/fs/cgroup/a/b/memory.high", "300000000\n");
    tree.put("/sys/fs/cgroup/a/b/memory.current", "10000000\n");
    const MemoryFacts facts = read_memory_facts(tree.root());
    EXPECT_EQ(facts.limit, 300000000u);
    // Siblings fill the outer group: 1000 - (950 - 130) million are less than 300 - 10.
    EXPECT_EQ(facts.limit_free, 180000000u);
    EXPECT_EQ(facts.usable(), 180000000u);
}

TEST(MemoryFactsTest, UsageAboveTheLimitLeavesNothing) {
    Tree tree;
    tree.put("/proc/self/mountinfo", kMountV2);
    tree.put("/proc/self/cgroup", "0::/\n");
    tree.put("/sys/fs/cgroup/memory.max", "1000\n");
    tree.put("/sys/fs/cgroup/memory.current", "3000\n");
    tree.put("/sys/fs/cgroup/memory.stat", "inactive_file 100\n");
    EXPECT_EQ(read_memory_facts(tree.root()).limit_free, 0u);
}

TEST(MemoryFactsTest, V1UnlimitedIsNoLimit) {
    Tree tree;
    tree.put("/proc/self/mountinfo", kMountV1);
    tree.put("/proc/self/cgroup", "4:memory:/box\n");
    const std::string folder = "/sys/fs/cgroup/memory";
    tree.put(folder + "/memory.limit_in_bytes", "9223372036854771712\n");
    tree.put(folder + "/box/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_FALSE(read_memory_facts(tree.root()).limit);
    tree.put(folder + "/box/memory.limit_in_bytes", "256000000\n");
    tree.put(folder + "/box/memory.usage_in_bytes", "100000000\n");
    tree.put(folder + "/box/memory.stat",
             "inactive_file 1\nactive_file 1\ntotal_inactive_file 20000000\n"
             "total_active_file 30000000\n");
    const MemoryFacts facts = read_memory_facts(tree.root());
    EXPECT_EQ(facts.limit, 256000000u);
    EXPECT_EQ(facts.limit_free, 206000000u);
}

TEST(MachineTest, NonsenseIsNoInformation) {
    Tree tree;
    std::filesystem::create_directories(tree.root() + "/proc/meminfo");  // a directory
    tree.put("/proc/self/mountinfo",
             "- - -\n\n30 22\n30 22 0:26 / /x rw - cgroup2\n - cgroup cgroup\n");
    tree.put("/proc/self/cgroup", "\n:\n::\n0:\nabc\n");
    tree.put("/proc/self/status", "RssAnon: many kB\nRssFile:");
    tree.put_cpu(0, "", kCapacity, -5);
    EXPECT_EQ(read_memory_facts(tree.root()).total, 0u);
    EXPECT_FALSE(read_memory_facts(tree.root()).limit);
    EXPECT_FALSE(read_process_memory(tree.root()));
    EXPECT_EQ(read_cpu_facts(tree.root(), first_cpus(1)).default_threads(), 1u);
    EXPECT_FALSE(read_process_memory(tree.root() + "/nowhere"));
}

TEST(MachineTest, ProcessMemory) {
    Tree tree;
    tree.put(
        "/proc/self/status",
        "VmRSS:\t    2176 kB\nRssAnon:\t     152 kB\nRssFile:\t    2024 kB\nRssShmem:\t 0 kB\n");
    const auto memory = read_process_memory(tree.root());
    ASSERT_TRUE(memory);
    EXPECT_EQ(memory->anonymous, 152u * 1024);
    EXPECT_EQ(memory->file_backed, 2024u * 1024);
    EXPECT_EQ(memory->peak, 0u);
    tree.put("/proc/self/status",
             "VmHWM:\t    3000 kB\nRssAnon:\t     152 kB\nRssFile:\t    2024 kB\n");
    EXPECT_EQ(read_process_memory(tree.root())->peak, 3000u * 1024);
}

TEST(MachineTest, CpuName) {
    Tree tree;
    EXPECT_EQ(read_cpu_name(tree.root()), "");
    tree.put("/proc/device-tree/model", std::string("A Board Rev 1.2\0", 16));
    EXPECT_EQ(read_cpu_name(tree.root()), "A Board Rev 1.2");
    tree.put("/proc/cpuinfo", "processor\t: 0\nFeatures : fp\n\nHardware\t: SoC\nModel\t\t: Pi\n");
    EXPECT_EQ(read_cpu_name(tree.root()), "Pi");
    tree.put("/proc/cpuinfo",
             "processor\t: 0\nmodel\t\t: 6\nmodel name\t: A CPU\nmodel name\t: B\n");
    EXPECT_EQ(read_cpu_name(tree.root()), "A CPU");
}

#if defined(__linux__)
TEST(MachineTest, ThisMachine) {
    const CpuFacts cpus = read_cpu_facts();
    EXPECT_EQ(cpus.allowed, allowed_cpus());
    ASSERT_FALSE(cpus.allowed.empty());
    EXPECT_LE(cpus.n_fast_cores, cpus.n_cores);
    EXPECT_LE(cpus.n_cores, cpus.allowed.size());
    EXPECT_GE(cpus.default_threads(), 1u);
    EXPECT_LE(cpus.default_threads(), cpus.n_fast_cores);

    const MemoryFacts memory = read_memory_facts();
    EXPECT_GT(memory.total, 0u);
    EXPECT_GT(memory.available, 0u);
    EXPECT_LT(memory.available, memory.total);
    EXPECT_LE(memory.usable(), memory.available);
}

TEST(MachineTest, AnonymousMemoryShowsWhatWasTouched) {
    const auto before = read_process_memory();
    if (!before) GTEST_SKIP() << "this kernel does not report RssAnon";
    EXPECT_GT(before->file_backed, 0u);
    constexpr size_t kSize = size_t{64} << 20;
    void* data = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(data, MAP_FAILED);
    for (size_t i = 0; i < kSize; i += 4096) static_cast<char*>(data)[i] = 1;
    const auto after = read_process_memory();
    munmap(data, kSize);
    EXPECT_GT(after->anonymous, before->anonymous + kSize / 2);
}
#endif

TEST(MachineTest, MonotonicClock) {
    const double start = monotonic_seconds();
    usleep(20'000);
    const double elapsed = monotonic_seconds() - start;
    EXPECT_GE(elapsed, 0.02);
    EXPECT_LT(elapsed, 10);
}

}  // namespace
}  // namespace picolm
