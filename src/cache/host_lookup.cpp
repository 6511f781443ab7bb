#include "cache/host_lookup.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/format.h"

namespace picolm::cache {
namespace {

using Addresses = Result<std::vector<std::string>>;

// Owned by who asks and by the thread that answers, whoever lives longer.
struct Pending {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Addresses> answer;
};

bool is_numeric(const std::string& host) {
    in6_addr address;
    return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
           inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

}  // namespace

Addresses system_lookup(const std::string& name) {
    addrinfo hints{}, *list = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int error = getaddrinfo(name.c_str(), nullptr, &hints, &list);
    if (error) return Error{ErrorKind::io, gai_strerror(error)};
    std::vector<std::string> addresses;
    for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
        char text[NI_MAXHOST];
        if (getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, nullptr, 0,
                        NI_NUMERICHOST) == 0 &&
            std::find(addresses.begin(), addresses.end(), text) == addresses.end())
            addresses.emplace_back(text);
    }
    freeaddrinfo(list);
    if (addresses.empty()) return Error{ErrorKind::io, "the name has no address"};
    return addresses;
}

Addresses addresses_of(const std::string& host, std::chrono::milliseconds timeout,
                       const HostLookup& lookup) {
    if (is_numeric(host)) return std::vector<std::string>{host};
    const auto pending = std::make_shared<Pending>();
    const auto answer = [pending, lookup, host] {
        Addresses found = lookup(host);
        const std::lock_guard lock(pending->mutex);
        pending->answer = std::move(found);
        pending->done.notify_all();
    };
    try {
        std::thread(answer).detach();
    } catch (const std::system_error&) {
        return Error{ErrorKind::io, "no thread to look up the name with"};
    }
    std::unique_lock lock(pending->mutex);
    if (!pending->done.wait_for(lock, timeout, [&] { return pending->answer.has_value(); }))
        return Error{ErrorKind::io, format("looking up the name takes more than %lld ms",
                                           static_cast<long long>(timeout.count()))};
    return std::move(*pending->answer);
}

}  // namespace picolm::cache
