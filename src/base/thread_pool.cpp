#include "base/thread_pool.h"

#include <system_error>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace picolm {
namespace {

// About 50 us of polling before a thread sleeps: longer than the gaps between the jobs of one
// forward pass, shorter than anybody's patience for a busy idle process.
constexpr int kSpins = 2000;

constexpr uint64_t kClosed = 0xffffffff;  // a ticket without units, of a job that never is

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

ThreadPool::ThreadPool(unsigned n_threads) {
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

void ThreadPool::run_units(uint32_t n_units, Function function, void* context) {
    const FloatEnvironment environment;
    if (threads_.empty() || n_units <= 1) {
        for (uint32_t unit = 0; unit < n_units; ++unit) function(context, unit, 0);
        return;
    }
    const uint32_t job = job_.load(std::memory_order_relaxed) + 1;
    // Close the old ticket first. Whoever sees one of the new fields (acquire) then also sees the
    // closed ticket, so that no exchange of the old job can succeed with a field of the new one.
    ticket_.store(kClosed, std::memory_order_relaxed);
    n_units_.store(n_units, std::memory_order_release);
    function_.store(function, std::memory_order_release);
    context_.store(context, std::memory_order_release);
    n_done_.store(0, std::memory_order_relaxed);
    ticket_.store(uint64_t{job} << 32, std::memory_order_release);
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

void ThreadPool::take_units(uint32_t job, unsigned thread) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    for (;;) {
        const uint32_t n_units = n_units_.load(std::memory_order_acquire);
        const Function function = function_.load(std::memory_order_acquire);
        void* const context = context_.load(std::memory_order_acquire);
        const uint32_t unit = static_cast<uint32_t>(ticket);
        if (ticket >> 32 != job || unit >= n_units) return;
        if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                           std::memory_order_acquire))
            continue;
        function(context, unit, thread);
        n_done_.fetch_add(1, std::memory_order_release);
        ticket = ticket_.load(std::memory_order_acquire);
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
