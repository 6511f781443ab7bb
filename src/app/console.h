// The two streams of the program: the answer on standard output, everything else on standard
// error. Whatever comes from a file or a message is made printable before it reaches standard
// error; the answer itself is passed on as the model wrote it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "app/options.h"
#include "base/log.h"

namespace picolm::app {

class Console {
  public:
    Console();
    void set_verbosity(Verbosity verbosity) { verbosity_ = verbosity; }
    bool verbose() const { return verbosity_ == Verbosity::verbose; }

    // Writes to standard output at once. False when nobody listens any more: see output().
    bool answer(std::string_view text);
    enum class Output { open, closed, failed };  // closed: the reader went away
    Output output() const { return output_; }
    int output_errno() const { return output_errno_; }  // of failed

    // Lines on standard error; a text may have several. From any thread.
    void log(LogLevel level, std::string_view text);
    void detail(std::string_view text) { log(LogLevel::detail, text); }
    void info(std::string_view text) { log(LogLevel::info, text); }
    void warning(std::string_view text) { log(LogLevel::warning, text); }
    void error(std::string_view text);

    // A line that is drawn over, on a terminal only and at most ten times a second.
    void progress(std::string_view what, uint32_t done, uint32_t total);
    void status(std::string_view text);  // the same line, as often as it is called
    void end_progress();

  private:
    void write_lines(std::string_view prefix, std::string_view text);
    void erase_progress();

    Verbosity verbosity_ = Verbosity::normal;
    Output output_ = Output::open;
    int output_errno_ = 0;
    std::mutex mutex_;  // standard error
    bool stderr_is_terminal_;
    bool progress_shown_ = false;
    double progress_time_ = 0;
};

}  // namespace picolm::app
