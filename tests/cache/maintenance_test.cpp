// Looking after a cache, the same for a file and a folder: verify, remove, copies, lists of
// prompts.
#include <filesystem>

#include "cache/chain_list.h"
#include "cache/directory_store.h"
#include "cache_support.h"

namespace picolm::testing {
namespace {

namespace fs = std::filesystem;
using cache::Chain;
using cache::RecordInfo;
using cache::Store;

enum class Kind { file, folder };

class MaintenanceTest : public ::testing::TestWithParam<Kind> {
  protected:
    TempDir dir_{memory_folder()};
    FaultyFileSystem calm_;  // never told to fail, and does not wait for the disk
    FakeModel model_;
    Units system_ = random_units(100, 1);

    std::unique_ptr<Store> store(const std::string& name, Kind kind) {
        const std::string path = dir_.file(name);
        if (kind == Kind::file)
            return std::make_unique<cache::FileStore>(path,
                                                      cache::FileStoreOptions{.files = &calm_});
        return std::make_unique<cache::DirectoryStore>(
            path, cache::DirectoryStoreOptions{.limit_bytes = 1 << 30, .files = &calm_});
    }
    std::unique_ptr<Store> store(const std::string& name) { return store(name, GetParam()); }

    Units message(uint32_t i) const { return joined(system_, random_units(20, 100 + i)); }
    void fill(Store& store, uint32_t n) {
        for (uint32_t i = 0; i < n; ++i) {
            const uint32_t matched = load_right(store, model_, message(i));
            ASSERT_TRUE(save(store, model_, message(i), matched));
        }
    }
    // The bytes of one record, wherever it lies.
    void damage(const RecordInfo& record, const std::string& name) {
        std::string needle(record.header.head_size(), '\0');
        const std::vector<uint8_t> head = cache::encode_header(record.header);
        needle.assign(head.begin(), head.end());
        std::vector<fs::path> files = {dir_.file(name)};
        if (GetParam() == Kind::folder) {
            files.clear();
            for (const auto& entry : fs::recursive_directory_iterator(dir_.file(name)))
                if (entry.is_regular_file()) files.push_back(entry.path());
        }
        for (const fs::path& file : files) {
            std::string text = read_text(file);
            const size_t at = text.find(needle);
            if (at == text.npos) continue;
            text[at + needle.size()] ^= 1;
            write_text(file, text);
            return;
        }
        FAIL() << "the record is nowhere";
    }
};

TEST_P(MaintenanceTest, PromptsAreListed) {
    auto cache = store("c");
    fill(*cache, 3);
    ASSERT_TRUE(save(*cache, model_, random_units(10, 7)));
    const std::vector<RecordInfo> records = cache->list();
    const std::vector<Chain> chains = cache::list_chains(records);
    ASSERT_EQ(chains.size(), 4u);
    std::set<Units> found;
    for (const Chain& chain : chains) {
        found.insert(chain.units);
        EXPECT_EQ(chain.identity, model_.identity);
        EXPECT_TRUE(chain.has_hidden);
        EXPECT_EQ(chain.own,
                  cache::chain_keys(cache::identity_key(model_.identity), chain.units).back());
        EXPECT_LT(chain.shared_bytes, chain.bytes);
    }
    EXPECT_EQ(found, (std::set<Units>{message(0), message(1), message(2), random_units(10, 7)}));
}

TEST_P(MaintenanceTest, AConversationThatGrowsIsOnePrompt) {
    auto cache = store("c");
    Units units;
    for (uint32_t turn = 0; turn < 10; ++turn) {
        units = joined(units, random_units(30, turn));
        ASSERT_TRUE(save(*cache, model_, units, load_right(*cache, model_, units)));
    }
    const std::vector<RecordInfo> records = cache->list();
    const std::vector<Chain> chains = cache::list_chains(records);
    ASSERT_EQ(chains.size(), 1u);
    EXPECT_EQ(chains[0].units, units);
    EXPECT_EQ(chains[0].shared_bytes, 0u);
}

TEST_P(MaintenanceTest, VerifyFindsAndRemovesWhatIsDamaged) {
    auto cache = store("c");
    fill(*cache, 3);
    auto report = cache->verify(false);
    ASSERT_TRUE(report) << report.error().text;
    const uint32_t all = report->n_records;
    EXPECT_EQ(all, cache->list().size());
    EXPECT_EQ(report->n_damaged, 0u);

    for (const RecordInfo& record : cache->list()) {
        if (record.header.first != 64) continue;
        damage(record, "c");
        break;
    }
    report = cache->verify(false);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->n_damaged, 1u);
    EXPECT_EQ(report->damaged.size(), 1u);
    EXPECT_EQ(report->n_records, all - 1);
    EXPECT_EQ(report->n_removed, 0u);
    report = cache->verify(true);
    ASSERT_TRUE(report) << report.error().text;
    EXPECT_GE(report->n_removed, 1u);  // what hung on it too
    report = cache->verify(false);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->n_damaged, 0u);
    fill(*cache, 3);
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(load_right(*cache, model_, message(i)), 120u);
}

TEST_P(MaintenanceTest, NothingAtAllIsAnError) {
    auto cache = store("c");
    EXPECT_FALSE(cache->verify(false));
    EXPECT_FALSE(cache->remove({}));
    EXPECT_TRUE(cache->list().empty());
}

TEST_P(MaintenanceTest, RemovingAPromptLeavesTheOthersWhole) {
    auto cache = store("c");
    fill(*cache, 4);
    const std::vector<RecordInfo> records = cache->list();
    const std::vector<Chain> chains = cache::list_chains(records);
    ASSERT_EQ(chains.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
        if (chains[i].units != message(2)) continue;
        const auto n = cache->remove(cache::records_of(records, chains, {i}));
        ASSERT_TRUE(n) << n.error().text;
        EXPECT_GE(*n, 1u);
    }
    for (const uint32_t i : {0u, 1u, 3u}) EXPECT_EQ(load_right(*cache, model_, message(i)), 120u);
    EXPECT_LT(load_right(*cache, model_, message(2)), 120u);
    EXPECT_EQ(cache::list_chains(cache->list()).size(), 3u);
    // All of them together.
    std::set<cache::RecordName> all;
    for (const RecordInfo& record : cache->list())
        all.emplace(record.header.parent, record.header.own);
    ASSERT_TRUE(cache->remove(all));
    EXPECT_TRUE(cache->list().empty());
}

TEST_P(MaintenanceTest, CopiedToEitherKindAndBackItIsTheSame) {
    auto cache = store("c");
    fill(*cache, 3);
    for (const Kind kind : {Kind::file, Kind::folder}) {
        auto copy = store(kind == Kind::file ? "copy.kvc" : "copy", kind);
        const std::vector<RecordInfo> records = cache->list();
        const std::vector<Chain> chains = cache::list_chains(records);
        std::vector<RecordInfo> wanted;
        std::set<uint32_t> seen;
        for (const Chain& chain : chains)
            for (const uint32_t i : chain.records)
                if (seen.insert(i).second) wanted.push_back(records[i]);
        auto report = copy->add(wanted);
        ASSERT_TRUE(report) << report.error().text;
        EXPECT_GT(report->bytes_written, 0u);
        for (uint32_t i = 0; i < 3; ++i) {
            const cache::Match match = copy->load(model_.query(message(i)));
            expect_right(match, model_, message(i));
            EXPECT_EQ(match.matched, 120u);
            EXPECT_FALSE(match.hidden.empty());
        }
        report = copy->add(wanted);
        ASSERT_TRUE(report);
        EXPECT_EQ(report->bytes_written, 0u);
    }
}

TEST_P(MaintenanceTest, ADamagedRecordIsNotCopied) {
    auto cache = store("c");
    fill(*cache, 1);
    for (const RecordInfo& record : cache->list())
        if (record.header.first == 64 && record.header.n > 0) damage(record, "c");
    auto copy = store("copy");
    const auto report = copy->add(cache->list());
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::corrupt);
    load_right(*copy, model_, message(0));
}

INSTANTIATE_TEST_SUITE_P(Stores, MaintenanceTest, ::testing::Values(Kind::file, Kind::folder),
                         [](const auto& store) {
                             return store.param == Kind::file ? "file" : "folder";
                         });

}  // namespace
}  // namespace picolm::testing
