#include "base/machine.h"

#if defined(__linux__)
#include <sched.h>
#endif
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <thread>

#include "base/format.h"

namespace picolm {
namespace {

// stdio and not a stream: reading a directory or a sick sysfs file makes a stream buffer throw.
std::string read_file(const std::string& path) {
    std::string text;
    std::FILE* file = std::fopen(path.c_str(), "re");
    if (!file) return text;
    char block[4096];
    while (const size_t n = std::fread(block, 1, sizeof block, file)) text.append(block, n);
    std::fclose(file);
    return text;
}

// The parts of `text` between separators; empty parts are left out.
std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const size_t end = std::min(text.find(separator), text.size());
        if (end > 0) parts.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

// The decimal number at the start of `text`, after blanks.
std::optional<uint64_t> number(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    uint64_t value = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end.ec != std::errc{}) return std::nullopt;
    return value;
}

std::optional<uint64_t> number_in(const std::string& path) {
    return number(read_file(path));
}

// The number behind `key` at the start of a line.
std::optional<uint64_t> field(std::string_view text, std::string_view key) {
    for (std::string_view line : split(text, '\n')) {
        if (!line.starts_with(key)) continue;
        if (const auto value = number(line.substr(key.size()))) return value;
    }
    return std::nullopt;
}

// ---- control groups ----

struct Mount {
    std::string_view root, point;
    bool v2;
    std::string_view options;
};

std::vector<Mount> cgroup_mounts(std::string_view mountinfo) {
    std::vector<Mount> mounts;
    for (std::string_view line : split(mountinfo, '\n')) {
        // id parent major:minor root mount-point options [optional...] - type source super-options
        const auto fields = split(line, ' ');
        const auto dash = std::find(fields.begin(), fields.end(), "-");
        if (dash - fields.begin() < 6 || fields.end() - dash < 4) continue;
        if (dash[1] == "cgroup2") mounts.push_back({fields[3], fields[4], true, {}});
        if (dash[1] == "cgroup") mounts.push_back({fields[3], fields[4], false, dash[3]});
    }
    return mounts;
}

bool has_item(std::string_view list, std::string_view item) {
    const auto items = split(list, ',');
    return std::find(items.begin(), items.end(), item) != items.end();
}

// The path of this process in a v1 controller's hierarchy, or with "" in the v2 hierarchy.
std::optional<std::string_view> cgroup_path(std::string_view cgroups, std::string_view controller) {
    for (std::string_view line : split(cgroups, '\n')) {  // hierarchy:controllers:path
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == line.npos || second == line.npos) continue;
        const std::string_view names = line.substr(first + 1, second - first - 1);
        if (controller.empty() ? names.empty() : has_item(names, controller))
            return line.substr(second + 1);
    }
    return std::nullopt;
}

struct Group {
    std::string folder;
    bool v2;
};

// This process's group of `controller` and all its ancestors that are visible, in v1 and v2.
std::vector<Group> cgroup_chain(const std::string& root, std::string_view controller) {
    const std::string cgroups = read_file(root + "/proc/self/cgroup");
    const std::string mountinfo = read_file(root + "/proc/self/mountinfo");
    std::vector<Group> chain;
    for (const Mount& mount : cgroup_mounts(mountinfo)) {
        if (!mount.v2 && !has_item(mount.options, controller)) continue;
        const auto found = cgroup_path(cgroups, mount.v2 ? std::string_view() : controller);
        if (!found) continue;
        // A container sees the path of the host, but only the part below the mount's root; a path
        // elsewhere (another namespace) leaves the mount point itself.
        std::string_view path = *found;
        if (mount.root != "/") {
            const bool inside = path.starts_with(mount.root) && (path.size() == mount.root.size() ||
                                                                 path[mount.root.size()] == '/');
            path = inside ? path.substr(mount.root.size()) : std::string_view();
        }
        const std::string top = root + std::string(mount.point);
        std::vector<std::string> folders = {top};
        for (std::string_view part : split(path, '/')) {
            if (part == "..") break;
            folders.push_back(folders.back() + "/" + std::string(part));
        }
        for (std::string& folder : folders) chain.push_back({std::move(folder), mount.v2});
    }
    return chain;
}

void keep_least(std::optional<uint64_t>& least, std::optional<uint64_t> value) {
    if (value && (!least || *value < *least)) least = value;
}

void add_memory_limit(const Group& group, MemoryFacts& facts) {
    constexpr uint64_t kUnlimited = uint64_t{1} << 62;  // v1 writes "no limit" as a huge number
    std::optional<uint64_t> limit;
    // Above memory.high the kernel does not kill, but slows down until nothing moves.
    for (const char* name : {"/memory.max", "/memory.high", "/memory.limit_in_bytes"})
        keep_least(limit, number_in(group.folder + name));
    if (!limit || *limit >= kUnlimited) return;
    keep_least(facts.limit, limit);

    const std::string prefix = group.v2 ? "" : "total_";
    const uint64_t used =
        number_in(group.folder + (group.v2 ? "/memory.current" : "/memory.usage_in_bytes"))
            .value_or(0);
    const std::string stat = read_file(group.folder + "/memory.stat");
    const uint64_t cache = field(stat, prefix + "inactive_file ").value_or(0) +
                           field(stat, prefix + "active_file ").value_or(0);
    const uint64_t held = used - std::min(used, cache);
    keep_least(facts.limit_free, *limit - std::min(*limit, held));
}

std::optional<double> cpu_quota(const Group& group) {
    std::optional<uint64_t> quota, period;
    if (group.v2) {
        const std::string text = read_file(group.folder + "/cpu.max");  // "max 100000"
        const auto fields = split(text, ' ');
        if (fields.size() == 2) quota = number(fields[0]), period = number(fields[1]);
    } else {
        quota = number_in(group.folder + "/cpu.cfs_quota_us");  // -1: none
        period = number_in(group.folder + "/cpu.cfs_period_us");
    }
    if (!quota || !period || *period == 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
}

// ---- cores ----

struct Core {
    std::string siblings;  // equal for the CPUs of one core
    uint64_t speed;
};

// Relative speeds of CPUs, all from one source; 1 for all where the system tells nothing.
std::vector<uint64_t> cpu_speeds(const std::vector<std::string>& folders) {
    for (const char* source : {"/cpu_capacity", "/cpufreq/cpuinfo_max_freq"}) {
        std::vector<uint64_t> speeds;
        for (const std::string& folder : folders) {
            const auto speed = number_in(folder + source);
            if (!speed || *speed == 0) break;
            speeds.push_back(*speed);
        }
        if (speeds.size() == folders.size()) return speeds;
    }
    return std::vector<uint64_t>(folders.size(), 1);
}

std::vector<Core> find_cores(const std::vector<std::string>& folders) {
    const std::vector<uint64_t> speeds = cpu_speeds(folders);
    std::vector<Core> cores;
    for (size_t i = 0; i < folders.size(); ++i) {
        std::string siblings = read_file(folders[i] + "/topology/thread_siblings_list");
        if (siblings.empty()) siblings = folders[i];
        const auto same = std::find_if(cores.begin(), cores.end(),
                                       [&](const Core& c) { return c.siblings == siblings; });
        if (same == cores.end())
            cores.push_back({std::move(siblings), speeds[i]});
        else
            same->speed = std::max(same->speed, speeds[i]);
    }
    return cores;
}

}  // namespace

uint32_t CpuFacts::default_threads() const {
    if (!quota || *quota >= n_fast_cores) return n_fast_cores;
    return std::max(1u, static_cast<uint32_t>(*quota));
}

std::vector<uint32_t> allowed_cpus() {
    std::vector<uint32_t> cpus;
#if defined(__linux__)
    // The kernel refuses a mask shorter than its own.
    for (size_t n_cpus = 1024; n_cpus <= (size_t{1} << 20); n_cpus *= 2) {
        cpu_set_t* set = CPU_ALLOC(n_cpus);
        if (!set) break;
        const size_t bytes = CPU_ALLOC_SIZE(n_cpus);
        CPU_ZERO_S(bytes, set);
        const bool read = sched_getaffinity(0, bytes, set) == 0;
        for (size_t i = 0; read && i < n_cpus; ++i)
            if (CPU_ISSET_S(i, bytes, set)) cpus.push_back(static_cast<uint32_t>(i));
        CPU_FREE(set);
        if (read) break;
    }
#endif
    if (cpus.empty())
        for (uint32_t i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
            cpus.push_back(i);
    return cpus;
}

CpuFacts read_cpu_facts(const std::string& root) {
    return read_cpu_facts(root, allowed_cpus());
}

CpuFacts read_cpu_facts(const std::string& root, std::span<const uint32_t> allowed) {
    CpuFacts facts;
    facts.allowed.assign(allowed.begin(), allowed.end());
    std::vector<std::string> folders;
    for (const uint32_t cpu : allowed)
        folders.push_back(root + format("/sys/devices/system/cpu/cpu%u", cpu));
    const std::vector<Core> cores = find_cores(folders);
    uint64_t best = 0;
    for (const Core& core : cores) best = std::max(best, core.speed);
    facts.n_cores = static_cast<uint32_t>(cores.size());
    facts.n_fast_cores = static_cast<uint32_t>(std::count_if(
        cores.begin(), cores.end(), [&](const Core& c) { return c.speed >= best - best / 5; }));
    for (const Group& group : cgroup_chain(root, "cpu")) {
        const auto quota = cpu_quota(group);
        if (quota && (!facts.quota || *quota < *facts.quota)) facts.quota = quota;
    }
    return facts;
}

std::string read_cpu_name(const std::string& root) {
    const std::string info = read_file(root + "/proc/cpuinfo");
    for (const std::string_view key : {"model name", "Model", "Hardware", "uarch"}) {
        for (std::string_view line : split(info, '\n')) {
            const size_t colon = line.find(':');
            if (!line.starts_with(key) || colon == line.npos) continue;
            line.remove_prefix(std::min(line.find_first_not_of(" \t", colon + 1), line.size()));
            if (!line.empty()) return printable(line);
        }
    }
    std::string board = read_file(root + "/proc/device-tree/model");
    while (!board.empty() && (board.back() == '\0' || board.back() == '\n')) board.pop_back();
    return printable(board);
}

MemoryFacts read_memory_facts(const std::string& root) {
    constexpr uint64_t kKilobyte = 1024;
    MemoryFacts facts;
    const std::string info = read_file(root + "/proc/meminfo");
    const auto get = [&](const char* key) { return field(info, key); };
    facts.total = get("MemTotal:").value_or(0) * kKilobyte;
    // Before Linux 3.14 there is no MemAvailable.
    const uint64_t available =
        get("MemAvailable:")
            .value_or(get("MemFree:").value_or(0) + get("Buffers:").value_or(0) +
                      get("Cached:").value_or(0));
    facts.available = available * kKilobyte;
    for (const Group& group : cgroup_chain(root, "memory")) add_memory_limit(group, facts);
    return facts;
}

std::optional<ProcessMemory> read_process_memory(const std::string& root) {
    const std::string status = read_file(root + "/proc/self/status");
    const auto anonymous = field(status, "RssAnon:"), file = field(status, "RssFile:");
    if (!anonymous || !file) return std::nullopt;
    return ProcessMemory{*anonymous * 1024, *file * 1024,
                         field(status, "VmHWM:").value_or(0) * 1024};
}

double monotonic_seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace picolm
