// Records in a real server: what a prompt finds, what is written, damage, and servers that fail.
#include "cache/redis_store.h"

#include <set>

#include "base/format.h"
#include "cache/chain_list.h"
#include "cache/directory_store.h"
#include "cache_support.h"
#include "redis_server.h"

namespace picolm::testing {
namespace {

using cache::Match;
using cache::RedisConnection;
using cache::RedisReply;
using cache::RedisStore;
using cache::SaveOutcome;
using cache::SaveReport;
using Clock = std::chrono::steady_clock;

cache::RedisAddress address_of(const RedisServer& server, const std::string& more = "") {
    const auto address = cache::parse_redis_url(server.url() + more);
    EXPECT_TRUE(address);
    return *address;
}

class RedisStoreTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!cache::redis_built()) GTEST_SKIP() << "built without hiredis";
        if (!RedisServer::installed()) GTEST_SKIP() << "redis-server is not installed";
        start({});
    }
    void start(const std::vector<std::string>& options, const std::string& more = "") {
        server_ = std::make_unique<RedisServer>(options);
        reopen(more);
    }
    void reopen(const std::string& more = "") {
        store_ = std::make_unique<RedisStore>(address_of(*server_, more));
    }
    SaveReport must_save(const Units& units, uint32_t verified = 0) {
        auto report = save(*store_, model_, units, verified);
        EXPECT_TRUE(report) << (report ? "" : report.error().text);
        return report ? *report : SaveReport{};
    }
    // The texts of one reply.
    std::vector<std::string> ask(std::initializer_list<std::string_view> words) const {
        std::vector<std::string> texts;
        auto connection = RedisConnection::open(address_of(*server_));
        EXPECT_TRUE(connection);
        if (!connection) return texts;
        (*connection)->add(words);
        const auto status = (*connection)->read(64 << 20, [&](const RedisReply& reply) {
            EXPECT_FALSE(reply.is_error()) << reply.text;
            texts.assign(reply.items.begin(), reply.items.end());
            if (reply.is_text()) texts.emplace_back(reply.text);
            if (reply.type == RedisReply::Type::integer)
                texts.push_back(std::to_string(reply.integer));
        });
        EXPECT_TRUE(status) << (status ? "" : status.error().text);
        return texts;
    }
    std::vector<std::string> all_keys(const std::string& pattern = "*") const {
        std::vector<std::string> keys = ask({"KEYS", pattern});
        std::sort(keys.begin(), keys.end());
        return keys;
    }
    std::string value(const std::string& key) const { return ask({"GET", key}).at(0); }
    // How often a command was run since the start.
    int calls(const std::string& command) const {
        const std::string text = ask({"INFO", "commandstats"}).at(0);
        const size_t at = text.find("cmdstat_" + command + ":calls=");
        return at == text.npos ? 0 : std::stoi(text.substr(text.find('=', at) + 1));
    }

    FakeModel model_;
    std::unique_ptr<RedisServer> server_;
    std::unique_ptr<RedisStore> store_;
};

TEST_F(RedisStoreTest, AnEmptyServerIsASilentMiss) {
    const Match match = store_->load(model_.query(random_units(10, 1)));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_TRUE(match.notes.empty()) << all_notes(match.notes);
}

TEST_F(RedisStoreTest, SaveThenLoad) {
    const Units units = random_units(150, 1);
    const SaveReport report = must_save(units);
    EXPECT_EQ(report.outcome, SaveOutcome::appended);
    EXPECT_EQ(report.positions_new, 150u);
    EXPECT_EQ(report.positions_total, 150u);
    const Match match = store_->load(model_.query(units));
    expect_right(match, model_, units);
    EXPECT_EQ(match.matched, 150u);
    EXPECT_FALSE(match.hidden.empty());
    EXPECT_TRUE(match.notes.empty()) << all_notes(match.notes);
    EXPECT_EQ(match.bytes_read, 150 * model_.position_bytes + model_.hidden_bytes);
    for (const cache::Segment& s : match.segments)
        EXPECT_EQ(reinterpret_cast<uintptr_t>(s.payload.data()) % 64, 0u);
    EXPECT_EQ(all_keys("picolm:r:*").size(), 4u);  // three pages and the hidden state
    EXPECT_EQ(all_keys("picolm:i:*").size(), 1u);
    // What was handed out outlives the server.
    server_->stop();
    expect_right(match, model_, units);
}

TEST_F(RedisStoreTest, ALongPrompt) {
    model_.position_bytes = 4096;
    const Units units = random_units(5000, 1);
    must_save(units);
    EXPECT_EQ(load_right(*store_, model_, units), 5000u);
    EXPECT_EQ(load_right(*store_, model_,
                         joined(Units(units.begin(), units.begin() + 2100), random_units(3000, 2))),
              2100u);
    EXPECT_EQ(store_->find(model_.query(units)).matched, 5000u);
}

TEST_F(RedisStoreTest, E1OtherPromptsReuseTheCommonPrefix) {
    const Units base = random_units(150, 1);
    must_save(base);
    for (const size_t common : {0u, 1u, 60u, 63u, 64u, 65u, 127u, 128u, 149u, 150u}) {
        Units units(base.begin(), base.begin() + static_cast<ptrdiff_t>(common));
        units = joined(units, random_units(40, 99));
        EXPECT_EQ(load_right(*store_, model_, units), common);
    }
    EXPECT_EQ(load_right(*store_, model_, Units(base.begin(), base.begin() + 70)), 70u);
}

TEST_F(RedisStoreTest, E10EverythingBeforeAChangedUnitIsReusedAndTheRestAdded) {
    const Units base = random_units(90, 1);
    must_save(base);
    for (uint32_t clock = 0; clock < 5; ++clock) {
        Units units = base;
        units[70] = 40000 + clock;
        EXPECT_EQ(load_right(*store_, model_, units), 70u);
        EXPECT_EQ(must_save(units, 70).positions_new, 20u);
        EXPECT_EQ(load_right(*store_, model_, units), 90u);
    }
    EXPECT_EQ(load_right(*store_, model_, base), 90u);
}

// The longest prefix shared with any saved prompt, found by comparing with every one of them.
TEST_F(RedisStoreTest, MatchesEqualExhaustiveSearch) {
    model_.position_bytes = 8;
    model_.hidden_bytes = 8;
    std::mt19937 random(7);
    for (int round = 0; round < 4; ++round) {
        ask({"FLUSHALL"});
        std::vector<Units> saved;
        for (int i = 0; i < 40; ++i) {
            Units units;
            if (!saved.empty() && random() % 4 != 0) {
                units = saved[random() % saved.size()];
                units.resize(random() % (units.size() + 1));
            }
            units =
                joined(units, random_units(1 + random() % 90, static_cast<uint32_t>(random()), 2));
            if (units.size() > 300) units.resize(300);
            uint32_t matched = 0;
            for (const Units& other : saved) {
                const auto common =
                    std::mismatch(units.begin(), units.end(), other.begin(), other.end()).first -
                    units.begin();
                matched = std::max(matched, static_cast<uint32_t>(common));
            }
            ASSERT_EQ(load_right(*store_, model_, units), matched);
            ASSERT_EQ(must_save(units, matched).positions_new, units.size() - matched);
            saved.push_back(units);
        }
    }
}

// More messages behind one beginning than are looked at: the same again is found by its name.
TEST_F(RedisStoreTest, HundredsOfMessagesBehindOneSystemPrompt) {
    model_.position_bytes = 16;
    const Units system = random_units(100, 1);
    for (uint32_t i = 0; i < 150; ++i) must_save(joined(system, random_units(20, 1000 + i)), 100);
    for (uint32_t i = 0; i < 150; i += 7) {
        const Units again = joined(system, random_units(20, 1000 + i));
        EXPECT_EQ(load_right(*store_, model_, again), 120u) << i;
    }
    EXPECT_EQ(load_right(*store_, model_, joined(system, random_units(20, 5000))), 100u);
}

TEST_F(RedisStoreTest, E4OtherSettingsAreKeptApartWithTheReason) {
    const Units units = random_units(100, 1);
    must_save(units);
    FakeModel other = model_;
    other.identity = "format=1;model=fake;rope=500000";
    const Match match = store_->load(other.query(units));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_NE(all_notes(match.notes).find("rope: 10000 there, 500000 here"), std::string::npos);
    ASSERT_TRUE(save(*store_, other, units));
    EXPECT_EQ(load_right(*store_, other, units), 100u);
    EXPECT_EQ(load_right(*store_, model_, units), 100u);
    FakeModel larger = model_;
    larger.position_bytes *= 2;
    EXPECT_EQ(store_->load(larger.query(units)).matched, 0u);
}

TEST_F(RedisStoreTest, PrefixesAndDatabasesAreKeptApart) {
    const Units units = random_units(100, 1);
    reopen("/0?prefix=a*%5B");
    must_save(units);
    EXPECT_EQ(store_->list().size(), 4u);
    for (const char* other : {"/0", "/0?prefix=aa%5B", "/2?prefix=a*%5B"}) {
        reopen(other);
        EXPECT_EQ(load_right(*store_, model_, units), 0u) << other;
        EXPECT_TRUE(store_->list().empty());
    }
}

TEST_F(RedisStoreTest, E7NothingIsWrittenWhenNothingIsNew) {
    const Units units = random_units(150, 1);
    must_save(units);
    const auto written = [&] {
        return calls("set") + calls("zadd") + calls("zrem") + calls("del") + calls("expire");
    };
    const int before = written();
    for (int i = 0; i < 20; ++i) {
        const SaveReport report = must_save(units, i % 2 ? 150 : 0);
        EXPECT_EQ(report.outcome, SaveOutcome::nothing_new);
        EXPECT_EQ(report.positions_total, 150u);
        EXPECT_EQ(report.bytes_written, 0u);
        load_right(*store_, model_, units);
    }
    must_save(Units(units.begin(), units.begin() + 70));
    EXPECT_EQ(written(), before);
}

TEST_F(RedisStoreTest, E9PositionsBeyondTheContextAreNotLoadedOrSaved) {
    const Units units = random_units(150, 1);
    auto report = save(*store_, model_, units, 0, 100);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->positions_total, 100u);
    must_save(units, 100);
    cache::Query query = model_.query(units);
    query.max_positions = 80;
    const Match match = store_->load(query);
    EXPECT_EQ(match.matched, 80u);
    EXPECT_EQ(match.saved_positions, 150u);
    EXPECT_TRUE(match.hidden.empty());
}

TEST_F(RedisStoreTest, CancellingKeepsWhatIsComplete) {
    const Units units = random_units(300, 1);
    std::atomic<bool> cancel = false;
    cache::SaveRequest request;
    request.query = model_.query(units);
    request.cancel = &cancel;
    request.payload = [&](uint32_t first, uint32_t n, const cache::Sink& sink) {
        cancel = first >= 64;
        sink(model_.payload(units, first, n));
    };
    const auto report = store_->save(request);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->outcome, SaveOutcome::cancelled);
    EXPECT_EQ(report->positions_total, 128u);
    EXPECT_EQ(load_right(*store_, model_, units), 128u);
}

TEST_F(RedisStoreTest, ReadOnlyWritesNothing) {
    const Units units = random_units(100, 1);
    must_save(units);
    const auto before = all_keys();
    RedisStore reader(address_of(*server_), {.read_only = true});
    EXPECT_EQ(load_right(reader, model_, units), 100u);
    ASSERT_TRUE(save(reader, model_, random_units(100, 2)));
    EXPECT_EQ(all_keys(), before);
}

TEST_F(RedisStoreTest, WhatIsSavedWithATtlExpires) {
    reopen("?ttl=1000");
    const Units units = random_units(100, 1);
    must_save(units);
    for (const std::string& key : all_keys()) {
        const int ttl = std::stoi(ask({"TTL", key}).at(0));
        EXPECT_TRUE(ttl > 900 && ttl <= 1000) << key << " " << ttl;
    }
    // A record that has gone from under its name.
    const auto before = all_keys();
    for (const std::string& key : all_keys("picolm:r:*")) {
        ask({"DEL", key});
        const Match match = store_->load(model_.query(units));
        expect_right(match, model_, units);
        EXPECT_TRUE(match.notes.empty()) << all_notes(match.notes);
        must_save(units, match.matched);
        EXPECT_EQ(all_keys(), before);
        EXPECT_EQ(load_right(*store_, model_, units), 100u);
    }
}

// Every value cut and flipped at many places: never believed, and repaired by the next save.
TEST_F(RedisStoreTest, E3DamagedValuesAreMissesAndAreRepaired) {
    const Units units = random_units(150, 1);
    must_save(units);
    std::vector<std::string> keys = all_keys("picolm:r:*");
    keys.push_back(all_keys("picolm:i:*").at(0));
    for (const std::string& key : keys) {
        const std::string good = value(key);
        std::vector<std::string> bad = {"",
                                        good.substr(0, 50),
                                        good.substr(0, good.size() - 1),
                                        good + '\0',
                                        std::string(good.size(), '\0'),
                                        good + std::string(300000, 'x')};
        for (size_t at = 0; at < good.size(); at += at < 400 ? 7 : 3001) {
            bad.push_back(good);
            bad.back()[at] ^= 0x20;
        }
        for (const std::string& text : bad) {
            ask({"SET", key, text});
            const Match match = store_->load(model_.query(units));
            expect_right(match, model_, units);
            EXPECT_TRUE(warned(match) || match.matched == 150 || text.empty())
                << all_notes(match.notes);
            must_save(units, match.matched);
            const Match again = store_->load(model_.query(units));
            expect_right(again, model_, units);
            EXPECT_EQ(again.matched, 150u);
            EXPECT_FALSE(again.hidden.empty());
        }
    }
}

TEST_F(RedisStoreTest, E3RecordsUnderWrongNames) {
    const Units units = random_units(150, 1);
    must_save(units);
    const std::vector<std::string> keys = all_keys("picolm:[ir]:*");
    for (const std::string& from : keys)
        for (const std::string& to : keys) {
            const std::string good = value(to);
            ask({"SET", to, value(from)});
            load_right(*store_, model_, units);
            ask({"SET", to, good});
        }
}

TEST_F(RedisStoreTest, E3KeysOfOtherTypesAreMissesAndAreRepaired) {
    const Units units = random_units(150, 1);
    must_save(units);
    for (const std::string& key : all_keys())
        for (const bool hash : {true, false}) {
            ask({"DEL", key});
            if (hash)
                ask({"HSET", key, "a", "b"});
            else if (key.starts_with("picolm:c:"))
                ask({"SET", key, "text"});
            else
                ask({"ZADD", key, "1", "x"});
            const Match match = store_->load(model_.query(units));
            expect_right(match, model_, units);
            must_save(units, match.matched);
            EXPECT_EQ(load_right(*store_, model_, units), 150u) << key;
        }
    // Names in a set that are none.
    const std::string set = all_keys("picolm:c:*").at(0);
    ask({"ZADD", set, "9e300", "nonsense", "9e300", std::string(32, 'f'), "inf",
         std::string(100000, '0')});
    EXPECT_EQ(load_right(*store_, model_, units), 150u);
}

TEST_F(RedisStoreTest, AServerThatIsGoneCostsOneWarning) {
    const Units units = random_units(150, 1);
    must_save(units);
    server_->stop();
    const Match match = store_->load(model_.query(units));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_TRUE(warned(match));
    EXPECT_EQ(match.notes.size(), 1u);
    EXPECT_TRUE(store_->load(model_.query(units)).notes.empty());
    const auto report = save(*store_, model_, units);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->bytes_written, 0u);
    // When saving is the first to notice, it is an error.
    reopen();
    const auto failed = save(*store_, model_, units);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, ErrorKind::io);
    EXPECT_TRUE(failed.error().text.starts_with("cannot save the KV cache: redis://127.0.0.1:"));
    EXPECT_TRUE(save(*store_, model_, units));
    EXPECT_TRUE(store_->list().empty());
    EXPECT_FALSE(store_->verify(false));
    EXPECT_FALSE(store_->check_server());
}

TEST_F(RedisStoreTest, AServerThatIsPausedCostsItsTimeoutOnce) {
    const Units units = random_units(150, 1);
    must_save(units);
    server_->pause();
    const auto start = Clock::now();
    const Match match = store_->load(model_.query(units));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_TRUE(warned(match));
    EXPECT_TRUE(save(*store_, model_, units));
    EXPECT_TRUE(store_->load(model_.query(units)).notes.empty());
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
    server_->go_on();
    reopen();
    EXPECT_EQ(load_right(*store_, model_, units), 150u);
}

// A payload that asks the server to stop while a save is under way.
TEST_F(RedisStoreTest, AServerThatStopsDuringASave) {
    const Units units = random_units(300, 1);
    for (const bool pause : {true, false}) {
        reopen();
        cache::SaveRequest request;
        request.query = model_.query(units);
        request.payload = [&](uint32_t first, uint32_t n, const cache::Sink& sink) {
            if (first >= 128) pause ? server_->pause() : server_->stop();
            sink(model_.payload(units, first, n));
        };
        const auto start = Clock::now();
        const auto report = store_->save(request);
        EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
        ASSERT_FALSE(report);
        EXPECT_EQ(report.error().kind, ErrorKind::io);
        EXPECT_TRUE(store_->load(model_.query(units)).notes.empty());
        if (pause) server_->go_on();
    }
    server_->start();
    reopen();
    load_right(*store_, model_, units);
    must_save(units);
    EXPECT_EQ(load_right(*store_, model_, units), 300u);
}

TEST_F(RedisStoreTest, AServerThatWasRestartedIsEmpty) {
    const Units units = random_units(150, 1);
    must_save(units);
    server_->stop();
    server_->start();
    EXPECT_EQ(load_right(*store_, model_, units), 0u);
    EXPECT_EQ(must_save(units).positions_new, 150u);
    EXPECT_EQ(load_right(*store_, model_, units), 150u);
}

TEST_F(RedisStoreTest, AFullServerIsAnErrorAndWhatItHasStaysGood) {
    start({"--maxmemory", "4mb", "--maxmemory-policy", "noeviction"});
    model_.position_bytes = 4096;
    bool full = false;
    for (uint32_t i = 0; i < 60 && !full; ++i) {
        const Units units = random_units(100, i);
        const auto report = save(*store_, model_, units);
        full = !report;
        if (full) {
            EXPECT_EQ(report.error().kind, ErrorKind::io);
            EXPECT_NE(report.error().text.find("OOM"), std::string::npos) << report.error().text;
        }
        const uint32_t matched = load_right(*store_, model_, units);
        if (!full) {
            EXPECT_EQ(matched, 100u);
        }
    }
    EXPECT_TRUE(full);
    EXPECT_EQ(load_right(*store_, model_, random_units(100, 0)), 100u);
}

TEST_F(RedisStoreTest, WhatTheServerEvictsIsAMiss) {
    start({"--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"});
    model_.position_bytes = 4096;
    uint32_t missed = 0;
    for (uint32_t i = 0; i < 60; ++i) {
        const Units units = random_units(130, i % 20);
        const uint32_t matched = load_right(*store_, model_, units);
        missed += 130 - matched;
        EXPECT_TRUE(save(*store_, model_, units, matched));
    }
    EXPECT_GT(missed, 20u * 130);
}

TEST_F(RedisStoreTest, AWrongPasswordIsRefusedAndNotShown) {
    start({"--requirepass", "right-one"});
    auto address = address_of(*server_);
    const Units units = random_units(100, 1);
    for (const char* password : {"wrong-one", ""}) {
        address.password = password;
        RedisStore store(address);
        const Match match = store.load(model_.query(units));
        EXPECT_TRUE(warned(match));
        EXPECT_EQ(all_notes(match.notes).find("wrong-one"), std::string::npos);
        RedisStore writer(address);
        const auto report = save(writer, model_, units);
        ASSERT_FALSE(report);
        EXPECT_EQ(report.error().text.find("wrong-one"), std::string::npos);
    }
    address.password = "right-one";
    RedisStore store(address);
    ASSERT_TRUE(save(store, model_, units));
    EXPECT_EQ(load_right(store, model_, units), 100u);
    address.user = "default";
    RedisStore named(address);
    EXPECT_EQ(load_right(named, model_, units), 100u);
}

// Something at the port that is no Redis server, or one that wants to do harm.
TEST(RedisConnectionTest, StrangeAnswersAreErrorsWithinTheTime) {
    if (!cache::redis_built()) GTEST_SKIP() << "built without hiredis";
    const FakeModel model;
    const Units units = random_units(100, 1);
    const std::string large(1 << 20, 'x');
    for (const std::string& answer :
         {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string("*1000000000\r\n"),
          std::string("*-7\r\n"), std::string("$99999999999\r\n") + large,
          std::string("$18446744073709551615\r\n"), "+" + large, std::string(1000, '\0'),
          std::string("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"),
          std::string("-ERR go away\r\n"), std::string(":1\r\n"), std::string()}) {
        FakeServer server(answer);
        cache::RedisAddress address;
        address.host = "127.0.0.1";
        address.port = server.port();
        address.timeout_ms = 50;
        const auto start = Clock::now();
        RedisStore store(address);
        const Match match = store.load(model.query(units));
        EXPECT_EQ(match.matched, 0u);
        EXPECT_TRUE(warned(match)) << printable(answer, 30);
        (void)save(store, model, units);
        RedisStore writer(address);
        EXPECT_FALSE(save(writer, model, units));
        EXPECT_LT(Clock::now() - start, std::chrono::seconds(3)) << printable(answer, 30);
    }
}

TEST_F(RedisStoreTest, TwoStoresAtOnce) {
    const Units system = random_units(70, 1);
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 2; ++t)
        threads.emplace_back([&, t] {
            RedisStore store(address_of(*server_));
            for (uint32_t i = 0; i < 40; ++i) {
                const Units units =
                    joined(system, random_units(60, i % 2 ? 100 + i : t * 1000 + i));
                const Match match = store.load(model_.query(units));
                expect_right(match, model_, units);
                EXPECT_TRUE(save(store, model_, units, match.matched));
                EXPECT_EQ(load_right(store, model_, units), 130u);
            }
        });
    for (std::thread& thread : threads) thread.join();
    const auto report = store_->verify(false);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->n_damaged, 0u);
}

TEST_F(RedisStoreTest, ListVerifyRemoveAndCopy) {
    const Units a = random_units(150, 1);
    const Units b = joined(Units(a.begin(), a.begin() + 100), random_units(30, 2));
    must_save(a);
    must_save(b);
    auto records = store_->list();
    auto chains = cache::list_chains(records);
    ASSERT_EQ(chains.size(), 2u);
    for (const cache::RecordInfo& info : records) EXPECT_EQ(info.identity, model_.identity);
    EXPECT_GT(chains[0].used_ns, 0);

    // Into a folder and back into another part of the server.
    TempDir dir;
    cache::DirectoryStore folder(dir.file("cache"), {.limit_bytes = 1 << 30});
    std::vector<cache::RecordInfo> ordered;
    std::set<uint32_t> seen;
    for (const auto& chain : chains)
        for (const uint32_t i : chain.records)
            if (seen.insert(i).second) ordered.push_back(records[i]);
    ASSERT_TRUE(folder.add(ordered));
    EXPECT_EQ(load_right(folder, model_, a), 150u);
    RedisStore copy(address_of(*server_, "?prefix=copy:"));
    const auto added = copy.add(ordered);
    ASSERT_TRUE(added);
    EXPECT_EQ(added->positions_new, 180u);
    EXPECT_EQ(copy.add(ordered)->bytes_written, 0u);
    EXPECT_EQ(load_right(copy, model_, a), 150u);
    EXPECT_EQ(load_right(copy, model_, b), 130u);

    // Without one of the two prompts.
    const size_t gone = chains[0].units == a ? 0 : 1;
    const auto removed = store_->remove(cache::records_of(records, chains, {gone}));
    ASSERT_TRUE(removed);
    EXPECT_EQ(*removed, 2u);  // the last page and the hidden state
    EXPECT_EQ(load_right(*store_, model_, b), 130u);

    // A damaged page takes what hangs on it along.
    const std::string key = all_keys("copy:r:*").at(0);
    ask({"SETRANGE", key, "500", "damage"});
    const auto verified = copy.verify(false);
    ASSERT_TRUE(verified);
    EXPECT_EQ(verified->n_damaged, 1u);
    EXPECT_EQ(verified->n_removed, 0u);
    const auto repaired = copy.verify(true);
    ASSERT_TRUE(repaired);
    EXPECT_GE(repaired->n_removed, 1u);
    EXPECT_EQ(copy.verify(false)->n_damaged, 0u);
    const auto trimmed = store_->trim(0);
    ASSERT_FALSE(trimmed);
    EXPECT_EQ(trimmed.error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace picolm::testing
