#include "base/thread_pool.h"

#include <algorithm>
#include <system_error>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace picolm {
namespace {

// About 50 us of polling before a thread sleeps: longer than the gaps between the jobs of one
// forward pass, shorter than anybody's patience for a busy idle process.
constexpr int kSpins = 2000;

constexpr uint32_t kUnitBits = 20;
constexpr uint32_t kJobMask = 0xffffff;
constexpr uint64_t kClosed = 0;  // a run without units

constexpr uint64_t pack_run(uint32_t job, uint32_t begin, uint32_t end) {
    return uint64_t{job & kJobMask} << (2 * kUnitBits) | uint64_t{begin} << kUnitBits | end;
}

void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#else
    std::this_thread::yield();
#endif
}

uint64_t read_control() {
#if defined(__x86_64__)
    return _mm_getcsr();
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
#elif defined(__riscv) && defined(__riscv_flen)
    uint64_t value;
    __asm__ volatile("frrm %0" : "=r"(value));
    return value;
#elif defined(__arm__) && defined(__ARM_FP)
    uint32_t value;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(value));
    return value;
#else
    return 0;
#endif
}

void write_control(uint64_t value) {
#if defined(__x86_64__)
    _mm_setcsr(static_cast<unsigned>(value));
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(value));
#elif defined(__riscv) && defined(__riscv_flen)
    __asm__ volatile("fsrm %0" : : "r"(value));
#elif defined(__arm__) && defined(__ARM_FP)
    __asm__ volatile("vmsr fpscr, %0" : : "r"(static_cast<uint32_t>(value)));
#else
    (void)value;
#endif
}

#if defined(__x86_64__)
constexpr uint64_t kDefaultControl = 0x1f80;  // all exceptions masked, nearest even, no FTZ or DAZ
#else
constexpr uint64_t kDefaultControl = 0;
#endif

}  // namespace

FloatEnvironment::FloatEnvironment() : saved_(read_control()) {
    write_control(kDefaultControl);
}

FloatEnvironment::~FloatEnvironment() {
    write_control(saved_);
}

ThreadPool::ThreadPool(unsigned n_threads) : runs_(std::make_unique<Run[]>(n_threads)) {
    threads_.reserve(n_threads);
    for (unsigned thread = 1; thread < n_threads; ++thread) {
        try {
            threads_.emplace_back([this, thread] { serve(thread); });
        } catch (const std::system_error&) {
            break;
        }
    }
}

ThreadPool::~ThreadPool() {
    stop_ = true;
    job_.fetch_add(1);
    job_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

// A job of more units than a run has bits for, one part after the other.
void ThreadPool::run_parts(uint32_t n_units, Function function, void* context) {
    struct Part {
        Function function;
        void* context;
        uint32_t first;
    } part{function, context, 0};
    for (; part.first < n_units; part.first += std::min(kMaxUnits, n_units - part.first)) {
        run_units(
            std::min(kMaxUnits, n_units - part.first),
            [](void* c, uint32_t unit, unsigned thread) {
                const Part& p = *static_cast<Part*>(c);
                p.function(p.context, p.first + unit, thread);
            },
            &part);
    }
}

void ThreadPool::run_units(uint32_t n_units, Function function, void* context) {
    if (n_units > kMaxUnits) return run_parts(n_units, function, context);
    const FloatEnvironment environment;
    if (threads_.empty() || n_units <= 1) {
        for (uint32_t unit = 0; unit < n_units; ++unit) function(context, unit, 0);
        return;
    }
    const uint32_t job = job_.load(std::memory_order_relaxed) + 1;
    // Close the old runs first. Whoever sees one of the new fields (acquire) then also sees a
    // closed run, so that no exchange of the old job can succeed with a field of the new one.
    const unsigned n = this->n_threads();
    for (unsigned i = 0; i < n; ++i) runs_[i].bits.store(kClosed, std::memory_order_relaxed);
    function_.store(function, std::memory_order_release);
    context_.store(context, std::memory_order_release);
    n_done_.store(0, std::memory_order_relaxed);
    for (unsigned i = 0; i < n; ++i) {
        const auto begin = static_cast<uint32_t>(uint64_t{n_units} * i / n);
        const auto end = static_cast<uint32_t>(uint64_t{n_units} * (i + 1) / n);
        runs_[i].bits.store(pack_run(job, begin, end), std::memory_order_release);
    }
    job_.store(job);
    if (n_asleep_.load() > 0) job_.notify_all();

    take_units(job, 0);
    for (int spin = 0; n_done_.load(std::memory_order_acquire) != n_units; ++spin) {
        if (spin < kSpins)
            pause_briefly();
        else
            std::this_thread::yield();
    }
}

// One unit of the owner's run: the first for the owner, the last for anybody else.
bool ThreadPool::take_unit(uint32_t job, unsigned thread, unsigned owner) {
    std::atomic<uint64_t>& run = runs_[owner].bits;
    uint64_t bits = run.load(std::memory_order_acquire);
    for (;;) {
        const uint32_t begin = static_cast<uint32_t>(bits >> kUnitBits) & kMaxUnits;
        const uint32_t end = static_cast<uint32_t>(bits) & kMaxUnits;
        if (bits >> (2 * kUnitBits) != (job & kJobMask) || begin >= end) return false;
        const Function function = function_.load(std::memory_order_acquire);
        void* const context = context_.load(std::memory_order_acquire);
        const bool mine = owner == thread;
        const uint64_t rest = mine ? pack_run(job, begin + 1, end) : pack_run(job, begin, end - 1);
        if (!run.compare_exchange_weak(bits, rest, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
            continue;
        function(context, mine ? begin : end - 1, thread);
        n_done_.fetch_add(1, std::memory_order_release);
        return true;
    }
}

void ThreadPool::take_units(uint32_t job, unsigned thread) {
    const unsigned n = n_threads();
    for (unsigned i = 0; i < n; ++i)
        while (take_unit(job, thread, (thread + i) % n)) {
        }
}

void ThreadPool::serve(unsigned thread) {
    write_control(kDefaultControl);
    uint32_t seen = 0;
    for (;;) {
        uint32_t job = job_.load(std::memory_order_acquire);
        for (int spin = 0; job == seen && spin < kSpins; ++spin) {
            pause_briefly();
            job = job_.load(std::memory_order_acquire);
        }
        if (job == seen) {
            n_asleep_.fetch_add(1);
            job_.wait(seen);
            n_asleep_.fetch_sub(1);
            continue;
        }
        seen = job;
        if (stop_) return;
        take_units(job, thread);
    }
}

}  // namespace picolm
