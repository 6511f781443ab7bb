// What the program does about signals. SIGINT and SIGTERM ask for an end; a second SIGINT ends the
// program at once. SIGPIPE is ignored, so that a write says EPIPE. SIGBUS, by which the kernel says
// that mapped bytes cannot be had, becomes one line and the exit code for input and output.
#pragma once

#include <atomic>
#include <string>

#include "base/bytes.h"

namespace picolm::app {

// SIGPIPE and SIGBUS. `model` and `cache` stand in the line; cache may be empty.
void handle_faults(const std::string& model, const std::string& cache);
// A fault outside these bytes is not the model's.
void set_model_bytes(Bytes bytes);

// SIGINT and SIGTERM, unless they are ignored already. Until then they end the program as usual:
// there is nothing to save yet.
void handle_cancel();

// Set by the handlers.
const std::atomic<bool>& cancel_flag();
int cancel_signal();  // the first one that came; 0: none

}  // namespace picolm::app
