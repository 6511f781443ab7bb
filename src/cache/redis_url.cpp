#include "cache/redis_url.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/format.h"

namespace picolm::cache {
namespace {

constexpr std::string_view kScheme = "redis://";

Error wrong(const std::string& what) {
    return {ErrorKind::invalid,
            what +
                ": the address of a server is "
                "redis://[user:password@]host[:port][/db][?prefix=P&ttl=SECONDS&timeout=MS]"};
}

std::optional<uint32_t> number(std::string_view text, uint32_t low, uint32_t high) {
    uint32_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || value < low || value > high) return std::nullopt;
    return value;
}

// nullopt: a '%' without two digits behind it, or a zero byte, which no name can hold.
std::optional<std::string> decode(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        unsigned value = 0;
        if (text.size() - i < 3) return std::nullopt;
        const char* end = text.data() + i + 3;
        const auto [stop, error] = std::from_chars(text.data() + i + 1, end, value, 16);
        if (error != std::errc() || stop != end || value == 0) return std::nullopt;
        out += static_cast<char>(value);
        i += 2;
    }
    return out;
}

// The text up to the separator, which is dropped from `rest` with it.
std::string_view cut(std::string_view& rest, char separator) {
    const size_t at = std::min(rest.find(separator), rest.size());
    const std::string_view part = rest.substr(0, at);
    rest.remove_prefix(std::min(at + 1, rest.size()));
    return part;
}

Status take(std::string& target, std::string_view text, const char* what) {
    std::optional<std::string> value = decode(text);
    if (!value) return wrong(format("a %% in the %s needs two digits behind it", what));
    target = std::move(*value);
    return {};
}

Status take_host(RedisAddress& address, std::string_view text) {
    std::string_view host, port;
    if (text.starts_with('[')) {
        const size_t end = text.find(']');
        if (end == text.npos) return wrong("a bracket is not closed");
        host = text.substr(1, end - 1);
        port = text.substr(end + 1);
        if (!port.empty() && port.front() != ':') return wrong("only :port may follow the bracket");
    } else {
        const size_t colon = std::min(text.find(':'), text.size());
        host = text.substr(0, colon);
        port = text.substr(colon);
    }
    TRY(take(address.host, host, "host"));
    if (address.host.empty()) return wrong("there is no host");
    if (port.empty()) return {};
    const auto value = number(port.substr(1), 1, 65535);
    if (!value)
        return wrong("the port must be a number from 1 to 65535 (an IPv6 address stands in [])");
    address.port = static_cast<uint16_t>(*value);
    return {};
}

Status take_parameter(RedisAddress& address, std::string_view text) {
    const std::string_view name = cut(text, '=');
    if (name == "prefix") {
        TRY(take(address.prefix, text, "prefix"));
        if (address.prefix.empty() || address.prefix.size() > 200)
            return wrong("the prefix must have 1 to 200 bytes");
        return {};
    }
    if (name == "ttl") {
        const auto value = number(text, 1, 1000000000);
        if (!value) return wrong("ttl must be a number of seconds, from 1 up");
        address.ttl_seconds = *value;
        return {};
    }
    if (name == "timeout") {
        const auto value = number(text, 1, 60000);
        if (!value) return wrong("timeout must be from 1 to 60000 milliseconds");
        address.timeout_ms = *value;
        return {};
    }
    return wrong("unknown parameter; there are prefix, ttl and timeout");
}

}  // namespace

std::string RedisAddress::shown() const {
    const bool v6 = host.find(':') != host.npos;
    return format("redis://%s%s%s:%u/%u", v6 ? "[" : "", printable(host, 255).c_str(),
                  v6 ? "]" : "", port, db);
}

bool is_redis_url(std::string_view text) {
    return text.starts_with(kScheme) || text.starts_with("rediss://");
}

Result<RedisAddress> parse_redis_url(std::string_view text) {
    if (!text.starts_with(kScheme))
        return Error{ErrorKind::unsupported,
                     "rediss:// is not built: there is no encryption here. Use redis:// through a "
                     "tunnel, or inside a network that you trust"};
    RedisAddress address;
    std::string_view parameters = text.substr(kScheme.size());
    std::string_view path = cut(parameters, '?');
    std::string_view authority = cut(path, '/');
    const size_t at = authority.rfind('@');
    if (at != authority.npos) {
        std::string_view password = authority.substr(0, at);
        const std::string_view user = cut(password, ':');
        TRY(take(address.user, user, "user"));
        TRY(take(address.password, password, "password"));
        authority.remove_prefix(at + 1);
    }
    TRY(take_host(address, authority));
    if (!path.empty()) {
        const auto db = number(path, 0, 1000000);
        if (!db) return wrong("the database behind the / must be a number");
        address.db = *db;
    }
    while (!parameters.empty()) TRY(take_parameter(address, cut(parameters, '&')));
    return address;
}

}  // namespace picolm::cache
