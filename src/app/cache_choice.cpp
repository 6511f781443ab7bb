#include "app/cache_choice.h"

#include <cstdlib>
#include <utility>

#include "cache/directory_store.h"
#include "cache/file_store.h"
#include "cache/redis_store.h"
#include "cache/tiered_store.h"

namespace picolm::app {

std::string CacheOptions::place() const {
    if (server) return folder.empty() ? server->shown() : folder + " and " + server->shown();
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
    if (!options.folder.empty() && !options.file.empty())
        return Error{ErrorKind::invalid,
                     "--cache and --cache-dir: only one of them can be given, or a server "
                     "(redis://...) and a folder in front of it"};
    if (options.server && options.folder.empty() && options.limit)
        return Error{ErrorKind::invalid,
                     "--cache-limit: a server has a limit of its own (maxmemory)"};
    return {};
}

std::unique_ptr<cache::Store> open_store(const CacheOptions& options) {
    std::unique_ptr<cache::Store> server, folder;
    if (options.server)
        server = std::make_unique<cache::RedisStore>(
            *options.server, cache::RedisStoreOptions{.read_only = options.read_only});
    if (!options.folder.empty()) {
        cache::DirectoryStoreOptions directory;
        directory.limit_bytes = options.limit;
        directory.read_only = options.read_only;
        folder = std::make_unique<cache::DirectoryStore>(options.folder, directory);
    }
    if (server && folder)
        return std::make_unique<cache::TieredStore>(std::move(folder), std::move(server));
    if (server || folder) return server ? std::move(server) : std::move(folder);
    if (options.file.empty()) return nullptr;
    cache::FileStoreOptions file;
    if (options.limit) file.limit_bytes = *options.limit;
    file.read_only = options.read_only;
    return std::make_unique<cache::FileStore>(options.file, file);
}

}  // namespace picolm::app
