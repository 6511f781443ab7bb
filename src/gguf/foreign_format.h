// What a file that is not GGUF is, and what its owner can do about it. Only the first bytes are
// looked at; nothing is parsed.
#pragma once

#include <string>

#include "base/bytes.h"

namespace picolm {

// A sentence such as "this is a zip archive: unpack it and use the .gguf file inside". Always says
// something, also of bytes that nothing is known about. REQUIRES: bytes do not start with "GGUF".
std::string describe_foreign_format(Bytes bytes);

}  // namespace picolm
