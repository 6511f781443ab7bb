#include "kernels/kernels.h"

#include <array>
#include <cstdlib>
#include <string>

#include "base/format.h"
#include "kernels/levels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace picolm {
namespace {

bool always() {
    return true;
}

#if defined(__x86_64__)
// The builtin asks cpuid and, for AVX state, xgetbv. clang 14's does not know F16C.
bool has_avx2() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
    return f16c && __builtin_cpu_supports("avx2");
}

bool has_avxvnni() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4)) != 0;
}

bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

// Tiles need the CPU, an operating system that saves them (bits 17 and 18 of XCR0), and from Linux
// 5.16 on the permission for this process: threads get their tile state at the first use.
bool has_amx() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kOsxsave = 1u << 27, kTileBits = 3u << 24;  // cpuid 7: AMX-TILE, AMX-INT8
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kOsxsave)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTileBits) != kTileBits) return false;
    unsigned low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    constexpr unsigned kTileState = 3u << 17;
    if ((low & kTileState) != kTileState) return false;
#if defined(__linux__)
    constexpr long kReqXcompPerm = 0x1023, kXtileData = 18;  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, kReqXcompPerm, kXtileData) == 0;
#else
    return false;
#endif
}
#endif

#if defined(__aarch64__)
bool has_neon() {
    return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
}
bool has_dotprod() {
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
bool has_i8mm() {
    return (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}
#endif

struct Level {
    const char* name;
    int parent;         // index into kLevels; -1: none
    const char* needs;  // CPU features, in the words of /proc/cpuinfo
    bool (*usable)();
    void (*fill)(Kernels&);
};
// Parents stand before their children, better levels behind worse ones.
constexpr Level kLevels[] = {
    {"generic", -1, "", always, fill_generic},
#if defined(__x86_64__)
    {"sse2", 0, "sse2", always, fill_sse2},
    {"avx2", 1, "avx2 f16c", has_avx2, fill_avx2},
    {"avxvnni", 2, "avx_vnni", has_avxvnni, fill_avxvnni},
    {"avx512", 2, "avx512f avx512bw avx512vl avx512dq avx512_vnni", has_avx512, fill_avx512},
    {"amx", 4, "amx_tile amx_int8", has_amx, fill_amx},
#endif
#if defined(__aarch64__)
    {"neon", 0, "asimd", has_neon, fill_neon},
    {"dotprod", 1, "asimddp", has_dotprod, fill_dotprod},
    {"i8mm", 2, "i8mm", has_i8mm, fill_i8mm},
#endif
};
constexpr int kLevelCount = static_cast<int>(sizeof kLevels / sizeof kLevels[0]);

// The CPU is asked once.
bool usable(int level) {
    static const std::array<bool, kLevelCount> answers = [] {
        std::array<bool, kLevelCount> all{};
        for (size_t i = 0; i < all.size(); ++i) {
            const int parent = kLevels[i].parent;
            all[i] = kLevels[i].usable() && (parent < 0 || all[static_cast<size_t>(parent)]);
        }
        return all;
    }();
    return answers[static_cast<size_t>(level)];
}

void fill(Kernels& table, int level) {
    if (kLevels[level].parent >= 0) fill(table, kLevels[level].parent);
    kLevels[level].fill(table);
    table.name = kLevels[level].name;
}

const Kernels& table(int level) {
    static const std::array<Kernels, kLevelCount> tables = [] {
        std::array<Kernels, kLevelCount> all{};
        for (int i = 0; i < kLevelCount; ++i)
            if (usable(i)) fill(all[static_cast<size_t>(i)], i);
        return all;
    }();
    return tables[static_cast<size_t>(level)];
}

}  // namespace

ActKind act_kind(TensorType type) {
    switch (info(type).block_size) {
        case 1:
            return ActKind::f32;
        case 32:
            return ActKind::q32;
        default:
            return ActKind::q256;
    }
}

std::vector<LevelInfo> all_levels() {
    std::vector<LevelInfo> levels;
    for (int i = kLevelCount - 1; i >= 0; --i) {
        const Level& level = kLevels[i];
        const char* parent = level.parent < 0 ? "" : kLevels[level.parent].name;
        levels.push_back({level.name, parent, level.needs, usable(i)});
    }
    return levels;
}

std::vector<std::string_view> usable_levels() {
    std::vector<std::string_view> names;
    for (const LevelInfo& level : all_levels())
        if (level.usable) names.push_back(level.name);
    return names;
}

const Kernels* find_kernels(std::string_view name) {
    for (int i = 0; i < kLevelCount; ++i)
        if (name == kLevels[i].name && usable(i)) return &table(i);
    return nullptr;
}

Result<const Kernels*> select_kernels() {
    const char* forced = std::getenv("PICOLM_ISA");
    const std::vector<std::string_view> levels = usable_levels();
    if (!forced || !*forced) return find_kernels(levels.front());
    if (const Kernels* found = find_kernels(forced)) return found;
    std::string list;
    for (const std::string_view level : levels) list.append(list.empty() ? "" : ", ").append(level);
    return Error{
        ErrorKind::invalid,
        format("PICOLM_ISA=%s is not a level that this program has on this CPU; use one of: %s",
               printable(forced, 20).c_str(), list.c_str())};
}

}  // namespace picolm
