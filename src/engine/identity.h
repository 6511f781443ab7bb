// The identity of saved attention state: one printable string of everything that K and V depend on.
#pragma once

#include <string>

#include "base/hash.h"
#include "gguf/gguf.h"
#include "model/forward.h"

namespace picolm {

// Hash of the file's header and size and of a 4 KiB sample of every tensor; of all bytes where
// strict, or where the file is so small that this costs nothing (32 MiB).
Key128 model_fingerprint(const GgufFile& file, bool strict);

// "format=..;numerics=..;model=..;kv=..;geometry=..;rope=.."
std::string cache_identity(const GgufFile& file, const Model& model, KvTypes types, bool strict);

}  // namespace picolm
