#include "app/cache_choice.h"

#include <cstdlib>

#include "cache/directory_store.h"
#include "cache/file_store.h"
#include "cache/redis_store.h"

namespace picolm::app {

std::string CacheOptions::place() const {
    if (server) return server->shown();
    return folder.empty() ? file : folder;
}

Result<cache::RedisAddress> parse_server(const std::string& url) {
    TRY(cache::RedisAddress address, cache::parse_redis_url(url));
    if (!cache::redis_built())
        return Error{
            ErrorKind::unsupported,
            "this program was built without Redis: install libhiredis-dev and build again"};
    const char* password = std::getenv("PICOLM_REDIS_PASSWORD");
    if (address.password.empty() && password != nullptr) address.password = password;
    return address;
}

Status settle(CacheOptions& options) {
    if (cache::is_redis_url(options.file)) {
        TRY(options.server, parse_server(options.file));
        options.file.clear();
    }
    if (!options.folder.empty() && (options.server || !options.file.empty()))
        return Error{ErrorKind::invalid, "--cache and --cache-dir: only one of them can be given"};
    if (options.server && options.limit)
        return Error{ErrorKind::invalid,
                     "--cache-limit: a server has a limit of its own (maxmemory)"};
    return {};
}

std::unique_ptr<cache::Store> open_store(const CacheOptions& options) {
    if (options.server)
        return std::make_unique<cache::RedisStore>(
            *options.server, cache::RedisStoreOptions{.read_only = options.read_only});
    if (!options.folder.empty()) {
        cache::DirectoryStoreOptions directory;
        directory.limit_bytes = options.limit;
        directory.read_only = options.read_only;
        return std::make_unique<cache::DirectoryStore>(options.folder, directory);
    }
    if (options.file.empty()) return nullptr;
    cache::FileStoreOptions file;
    if (options.limit) file.limit_bytes = *options.limit;
    file.read_only = options.read_only;
    return std::make_unique<cache::FileStore>(options.file, file);
}

}  // namespace picolm::app
