// Where the layers below src/app send what the user may want to know. They never print.
#pragma once

#include <functional>
#include <string_view>

namespace picolm {

enum class LogLevel { detail, info, warning };

// Called from any thread; the sink serialises. An empty function drops everything.
using LogSink = std::function<void(LogLevel, std::string_view)>;

}  // namespace picolm
