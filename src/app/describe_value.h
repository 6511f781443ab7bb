// One metadata value of a GGUF file as a short text.
#pragma once

#include <string>

#include "gguf/gguf.h"

namespace picolm::app {

// "i32", "string[32000]".
std::string describe_type(const MetaValue& value);
// Printable; of an array its first elements.
std::string describe_value(const MetaValue& value);

}  // namespace picolm::app
