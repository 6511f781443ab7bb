// A fixed set of threads that share the units of one job at a time. The caller works too, so a pool
// of n threads starts n - 1. Each thread begins with a run of consecutive units of its own, so that
// it walks through memory in order, and then helps the others from the ends of theirs; which thread
// takes which unit must never reach a result.
//
// Every thread runs its units with the default floating-point environment (round to nearest even,
// subnormals kept), whatever the caller had set.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace picolm {

class ThreadPool {
  public:
    // REQUIRES: n_threads >= 1. Threads that the system refuses are done without.
    explicit ThreadPool(unsigned n_threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    unsigned n_threads() const { return static_cast<unsigned>(threads_.size()) + 1; }

    // Calls work(unit, thread) once for each unit in [0, n_units), thread in [0, n_threads());
    // returns when all are done. Not reentrant: one caller at a time, no run() inside work.
    template <typename Work>
    void run(uint32_t n_units, Work&& work) {
        using Type = std::remove_reference_t<Work>;
        run_units(
            n_units,
            [](void* context, uint32_t unit, unsigned thread) {
                (*static_cast<Type*>(context))(unit, thread);
            },
            const_cast<void*>(static_cast<const void*>(&work)));
    }

  private:
    using Function = void (*)(void* context, uint32_t unit, unsigned thread);
    static constexpr uint32_t kMaxUnits = (1 << 20) - 1;  // of one part
    void run_units(uint32_t n_units, Function function, void* context);
    void run_parts(uint32_t n_units, Function function, void* context);
    void serve(unsigned thread);
    void take_units(uint32_t job, unsigned thread);
    bool take_unit(uint32_t job, unsigned thread, unsigned owner);

    // What is left of a thread's run: the job number, the first unit and the end, 24 + 20 + 20
    // bits. A thread that wakes late cannot take a unit of a job that it has not seen, for its
    // exchange fails.
    struct alignas(64) Run {
        std::atomic<uint64_t> bits{0};
    };
    std::unique_ptr<Run[]> runs_;  // [n_threads]
    std::atomic<Function> function_{nullptr};
    std::atomic<void*> context_{nullptr};
    std::atomic<uint32_t> n_done_{0};
    std::atomic<uint32_t> job_{0};  // threads without work wait for this to change
    std::atomic<uint32_t> n_asleep_{0};
    std::atomic<bool> stop_{false};
    std::vector<std::thread> threads_;
};

// Sets the default floating-point environment and restores the caller's at the end of the scope.
class FloatEnvironment {
  public:
    FloatEnvironment();
    ~FloatEnvironment();
    FloatEnvironment(const FloatEnvironment&) = delete;
    FloatEnvironment& operator=(const FloatEnvironment&) = delete;

  private:
    uint64_t saved_;
};

}  // namespace picolm
