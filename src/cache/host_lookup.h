// Addresses of a host name, within a bounded time: the resolver of the system may take many seconds
// when its server does not answer, and cannot be told not to.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace picolm::cache {

// Numeric addresses of a name, in the order in which to try them. io: there are none.
using HostLookup = std::function<Result<std::vector<std::string>>(const std::string& name)>;

// By the system's resolver. May take long.
Result<std::vector<std::string>> system_lookup(const std::string& name);

// io: `lookup` found none, or is not done by then; it goes on in a thread of its own, and nobody
// waits for it. A numeric address is looked up at once.
Result<std::vector<std::string>> addresses_of(const std::string& host,
                                              std::chrono::milliseconds timeout,
                                              const HostLookup& lookup = system_lookup);

}  // namespace picolm::cache
