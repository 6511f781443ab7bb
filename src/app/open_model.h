// The one place where the options that commands share become those of an engine and of a session.
#pragma once

#include <memory>

#include "app/console.h"
#include "app/options.h"
#include "engine/session.h"

namespace picolm::app {

// Says what is opened and what was cut down to this machine.
Result<std::unique_ptr<Engine>> open_engine(const ModelOptions& options, Console& console,
                                            bool strict_identity = false);

// A context longer than the model's is cut down, with a note.
SessionOptions session_options(const ModelOptions& options, const Engine& engine, Console& console);

// What --verbose says about kernels and memory.
void show_plan(const Engine& engine, const MemoryPlan& plan, Console& console);

}  // namespace picolm::app
