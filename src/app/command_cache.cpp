// picolm cache: what is in a prompt cache, and keeping it in order.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "app/cache_choice.h"
#include "app/commands.h"
#include "base/file_system.h"
#include "base/format.h"
#include "cache/chain_list.h"
#include "cache/directory_store.h"
#include "cache/file_store.h"
#include "cache/redis_store.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"

namespace picolm::app {
namespace {

using cache::Chain;
using cache::RecordInfo;
using cache::Store;

constexpr size_t kShownText = 50;

// A place as it may be shown: without the password of a server.
std::string shown(const std::string& place) {
    if (!cache::is_redis_url(place)) return place;
    const auto address = cache::parse_redis_url(place);
    return address ? address->shown() : "the server";
}

// A store at a path, whatever is there: a folder or a file; or a server. `for_writing`: it may be
// absent.
Result<std::unique_ptr<Store>> store_at(const std::string& path, bool for_writing) {
    if (cache::is_redis_url(path)) {
        TRY(const cache::RedisAddress address, parse_server(path));
        auto server = std::make_unique<cache::RedisStore>(address);
        TRY(server->check_server());
        return std::unique_ptr<Store>(std::move(server));
    }
    FileInfo info;
    const int error = posix_file_system().info(path, info);
    if (error && !(for_writing && error == -ENOENT)) return file_error("read", path, error);
    const bool folder = error ? !path.ends_with(".kvc") : info.kind == FileKind::directory;
    // Whoever asks for a copy wants all of it.
    if (folder)
        return std::unique_ptr<Store>(std::make_unique<cache::DirectoryStore>(
            path, cache::DirectoryStoreOptions{.limit_bytes = UINT64_MAX}));
    return std::unique_ptr<Store>(std::make_unique<cache::FileStore>(
        path, cache::FileStoreOptions{.limit_bytes = UINT64_MAX, .lock_wait_ms = 2000}));
}

// "key=value;key=value".
std::string value_of(const std::string& identity, const std::string& key) {
    const std::string all = ";" + identity + ";", start = ";" + key + "=";
    const size_t at = all.find(start);
    if (at == all.npos) return "?";
    const size_t from = at + start.size();
    return all.substr(from, all.find(';', from) - from);
}

std::string model_of(const std::string& identity) {
    return value_of(identity, "model").substr(0, 12) + " " + value_of(identity, "kv");
}

std::string age_of(int64_t used_ns) {
    if (used_ns == 0) return "?";
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    const long long seconds = std::max<long long>(0, now - used_ns / 1000000000);
    if (seconds < 120) return format("%lld s", seconds);
    if (seconds < 7200) return format("%lld min", seconds / 60);
    if (seconds < 172800) return format("%lld h", seconds / 3600);
    return format("%lld days", seconds / 86400);
}

class CacheCommand {
  public:
    CacheCommand(const CacheCommandOptions& options, Console& console)
        : options_(options), console_(console) {}
    Status run();

  private:
    Status list();
    Status stat();
    Status verify();
    Status remove();
    Status trim();
    Status copy(const std::string& from, const std::string& to);

    Status open(const std::string& place);
    Status load_model();
    std::string text_of(const Chain& chain) const;
    // Places of the chains that the command line names, or all of them.
    Result<std::set<size_t>> chosen() const;
    void print(const std::string& text) { console_.answer(text); }

    const CacheCommandOptions& options_;
    Console& console_;
    std::unique_ptr<Store> store_;
    std::vector<RecordInfo> records_;
    std::vector<Chain> chains_;
    std::optional<GgufFile> model_;
    std::unique_ptr<Tokenizer> tokenizer_;
};

Status CacheCommand::open(const std::string& place) {
    TRY(store_, store_at(place, false));
    records_ = store_->list();
    chains_ = cache::list_chains(records_);
    if (!records_.empty()) return {};
    // An empty cache, or none at all.
    const auto report = store_->verify(false);
    return report ? Status() : Status(report.error());
}

Status CacheCommand::load_model() {
    if (options_.model.empty()) return {};
    TRY(model_, GgufFile::open(options_.model));
    TRY(tokenizer_, load_tokenizer(*model_));
    return {};
}

std::string CacheCommand::text_of(const Chain& chain) const {
    for (const uint32_t unit : chain.units)
        if (unit >= tokenizer_->n_vocab()) return "(not of this vocabulary)";
    return tokenizer_->decode(chain.units, true);
}

Result<std::set<size_t>> CacheCommand::chosen() const {
    std::set<size_t> places;
    if (options_.all || options_.ids.empty()) {
        for (size_t i = 0; i < chains_.size(); ++i) places.insert(i);
        return places;
    }
    for (const std::string& id : options_.ids) {
        size_t found = chains_.size();
        for (size_t i = 0; i < chains_.size(); ++i) {
            if (!chains_[i].own.hex().starts_with(id)) continue;
            if (found < chains_.size())
                return Error{ErrorKind::invalid,
                             "more than one prompt begins with \"" + id + "\": give more digits"};
            found = i;
        }
        if (found == chains_.size())
            return Error{ErrorKind::invalid,
                         format("there is no prompt \"%s\" in %s; picolm cache ls lists them",
                                printable(id).c_str(), shown(options_.place).c_str())};
        places.insert(found);
    }
    return places;
}

Status CacheCommand::list() {
    TRY(load_model());
    TRY(const std::set<size_t> places, chosen());
    if (options_.json) {
        auto json = nlohmann::ordered_json::array();
        for (const size_t i : places) {
            const Chain& c = chains_[i];
            json.push_back({{"id", c.own.hex()},
                            {"tokens", c.units.size()},
                            {"bytes", c.bytes},
                            {"shared_bytes", c.shared_bytes},
                            {"last_used", static_cast<double>(c.used_ns) * 1e-9},
                            {"uses", c.n_uses},
                            {"exact_hit", c.has_hidden},
                            {"identity", c.identity}});
            if (tokenizer_) json.back()["text"] = text_of(c);
        }
        print(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
        return {};
    }
    if (!options_.ids.empty() && tokenizer_) {
        for (const size_t i : places) print(text_of(chains_[i]) + "\n");
        return {};
    }
    print(format("%-8s  %7s  %10s  %10s  %9s  %5s  %s\n", "id", "tokens", "size", "shared", "used",
                 "uses", tokenizer_ ? "beginning" : "model and KV type"));
    for (const size_t i : places) {
        const Chain& c = chains_[i];
        print(format(
            "%-8s  %7zu  %10s  %10s  %9s  %5llu  %s\n", c.id().c_str(), c.units.size(),
            format_bytes(c.bytes).c_str(), format_bytes(c.shared_bytes).c_str(),
            age_of(c.used_ns).c_str(), static_cast<unsigned long long>(c.n_uses),
            tokenizer_ ? printable(text_of(c), kShownText).c_str() : model_of(c.identity).c_str()));
    }
    return {};
}

Status CacheCommand::stat() {
    uint64_t bytes = 0, positions = 0;
    std::map<std::string, size_t> models;
    for (const RecordInfo& record : records_) {
        bytes += record.bytes();
        positions += record.header.n;
    }
    for (const Chain& chain : chains_) ++models[chain.identity];
    if (options_.json) {
        nlohmann::ordered_json json = {{"place", shown(options_.place)},
                                       {"prompts", chains_.size()},
                                       {"records", records_.size()},
                                       {"tokens", positions},
                                       {"bytes", bytes}};
        for (const auto& [identity, n] : models) json["models"][identity] = n;
        print(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
        return {};
    }
    print(format("%s: %zu prompts, %zu records, %llu tokens, %s\n", shown(options_.place).c_str(),
                 chains_.size(), records_.size(), static_cast<unsigned long long>(positions),
                 format_bytes(bytes).c_str()));
    for (const auto& [identity, n] : models)
        print(format("%6zu  %s\n", n, printable(identity, 400).c_str()));
    return {};
}

Status CacheCommand::verify() {
    TRY(const cache::VerifyReport report, store_->verify(!options_.keep));
    for (const std::string& what : report.damaged) print("damaged: " + what + "\n");
    print(format("%u records are sound, %s; %u damaged, %u removed\n", report.n_records,
                 format_bytes(report.bytes).c_str(), report.n_damaged, report.n_removed));
    if (report.n_damaged > 0 && options_.keep)
        return Error{ErrorKind::corrupt, "the cache is damaged; without --keep it is repaired"};
    return {};
}

Status CacheCommand::remove() {
    if (options_.ids.empty() && !options_.all)
        return Error{ErrorKind::invalid,
                     "say which prompts: their ids, as picolm cache ls shows them, or --all"};
    TRY(const std::set<size_t> places, chosen());
    std::set<cache::RecordName> names;
    if (options_.all)
        for (const RecordInfo& record : records_)
            names.emplace(record.header.parent, record.header.own);
    else
        names = cache::records_of(records_, chains_, places);
    TRY(const uint32_t n, store_->remove(names));
    print(format("%zu prompts, %u records removed\n", places.size(), n));
    return {};
}

Status CacheCommand::trim() {
    TRY(const cache::SaveReport report, store_->trim(options_.size));
    uint64_t bytes = 0;
    for (const RecordInfo& record : store_->list()) bytes += record.bytes();
    print(format("%s is %s now; %u records removed\n", shown(options_.place).c_str(),
                 format_bytes(bytes).c_str(), report.n_evicted));
    return {};
}

Status CacheCommand::copy(const std::string& from, const std::string& to) {
    TRY(open(from));
    if (chains_.empty()) return Error{ErrorKind::invalid, "there is no prompt in " + shown(from)};
    TRY(const std::set<size_t> places, chosen());
    std::vector<RecordInfo> wanted;
    std::set<uint32_t> seen;
    for (const size_t place : places)
        for (const uint32_t i : chains_[place].records)
            if (seen.insert(i).second) wanted.push_back(records_[i]);
    TRY(const std::unique_ptr<Store> target, store_at(to, true));
    TRY(const cache::SaveReport report, target->add(wanted));
    print(format("%zu prompts: %u tokens were new in %s, %s written\n", places.size(),
                 report.positions_new, shown(to).c_str(),
                 format_bytes(report.bytes_written).c_str()));
    return {};
}

Status CacheCommand::run() {
    using Verb = CacheCommandOptions::Verb;
    switch (options_.verb) {
        case Verb::export_to:
            return copy(options_.place, options_.other);
        case Verb::import_from:
            return copy(options_.other, options_.place);
        default:
            break;
    }
    TRY(open(options_.place));
    switch (options_.verb) {
        case Verb::ls:
            return list();
        case Verb::stat:
            return stat();
        case Verb::verify:
            return verify();
        case Verb::rm:
            return remove();
        default:
            return trim();
    }
}

}  // namespace

ExitCode command_cache(const CacheCommandOptions& options, Console& console) {
    const Status status = CacheCommand(options, console).run();
    if (!status) return fail(console, status.error());
    return output_status(console);
}

}  // namespace picolm::app
