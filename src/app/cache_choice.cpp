#include "app/cache_choice.h"

#include "cache/directory_store.h"
#include "cache/file_store.h"

namespace picolm::app {

std::unique_ptr<cache::Store> open_store(const CacheOptions& options) {
    if (!options.folder.empty()) {
        cache::DirectoryStoreOptions directory;
        directory.limit_bytes = options.limit.value_or(0);
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
