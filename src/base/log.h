// How important what the layers below src/app have to tell the user is. They return it; they never
// print.
#pragma once

namespace picolm {

enum class LogLevel { detail, info, warning };

}  // namespace picolm
