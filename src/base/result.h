// Errors are values: Result<T> holds a T or an Error. Nothing below src/app throws, prints or
// exits. Names follow std::expected (C++23), which gcc 12 lacks in C++20 mode.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace picolm {

// One kind, one exit code and one HTTP status (src/app/exit_code.h).
enum class ErrorKind {
    io,           // the operating system refused: open, read, write, map
    corrupt,      // bytes that contradict their own format
    unsupported,  // well-formed, but beyond what this program can do
    invalid,      // the caller asked for something that makes no sense
    no_memory,    // the plan or an allocation does not fit
    busy,         // a lock or a resource is held by somebody else
    cancelled,    // the caller asked to stop
};

struct [[nodiscard]] Error {
    ErrorKind kind;
    std::string text;  // a sentence for the user: what is wrong and, where possible, what to do
};

template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }

    // REQUIRES: has_value().
    T& value() {
        assert(has_value());
        return *std::get_if<0>(&state_);
    }
    const T& value() const {
        assert(has_value());
        return *std::get_if<0>(&state_);
    }
    T& operator*() { return value(); }
    const T& operator*() const { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    // REQUIRES: !has_value().
    Error& error() {
        assert(!has_value());
        return *std::get_if<1>(&state_);
    }
    const Error& error() const {
        assert(!has_value());
        return *std::get_if<1>(&state_);
    }

  private:
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}

    bool has_value() const { return !error_; }
    explicit operator bool() const { return has_value(); }
    Error& error() {
        assert(error_);
        return *error_;
    }
    const Error& error() const {
        assert(error_);
        return *error_;
    }

  private:
    std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace picolm

#define PICOLM_CONCAT_(a, b) a##b
#define PICOLM_CONCAT(a, b) PICOLM_CONCAT_(a, b)

// TRY(expr): returns the error of a Result from the enclosing function, else goes on.
// TRY(auto x, expr): the same, and names the value.
#define PICOLM_TRY_STATUS(expr)                                        \
    do {                                                               \
        auto picolm_status_ = (expr);                                  \
        if (!picolm_status_) return std::move(picolm_status_.error()); \
    } while (0)
#define PICOLM_TRY_VALUE(decl, expr)                                       \
    auto PICOLM_CONCAT(picolm_result_, __LINE__) = (expr);                 \
    if (!PICOLM_CONCAT(picolm_result_, __LINE__))                          \
        return std::move(PICOLM_CONCAT(picolm_result_, __LINE__).error()); \
    decl = std::move(*PICOLM_CONCAT(picolm_result_, __LINE__))
#define PICOLM_TRY_PICK(a, b, name, ...) name
#define TRY(...) PICOLM_TRY_PICK(__VA_ARGS__, PICOLM_TRY_VALUE, PICOLM_TRY_STATUS, )(__VA_ARGS__)
