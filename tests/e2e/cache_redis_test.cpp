// --cache redis:// as a user sees it: a hit, a server that is not there, and no password anywhere.
#include "cache/redis_connection.h"
#include "models.h"
#include "process.h"
#include "redis_server.h"

namespace picolm::testing {
namespace {

std::vector<std::string> args_for(const std::string& url, const std::string& stats) {
    return {tiny_model(), "-p",      kPrompt, "-t",           "0",  "-n",
            "12",         "--cache", url,     "--stats-json", stats};
}

TEST(CacheRedis, TheSecondRunSkipsPrefillAndPrintsTheSame) {
    if (!cache::redis_built()) GTEST_SKIP() << "built without hiredis";
    if (!RedisServer::installed()) GTEST_SKIP() << "redis-server is not installed";
    TempDir dir;
    const RedisServer server({"--requirepass", "hush"});
    const std::string place = server.url();
    const std::string url = "redis://:hush@" + place.substr(8) + "?prefix=e2e:";
    const Outcome first = run(args_for(url, dir.file("stats")));
    ASSERT_EQ(first.code, 0) << first;
    EXPECT_TRUE(first.says(" positions to " + place + "/0\n")) << first;
    // The password may also come from the environment.
    const Outcome second = run(args_for(place + "?prefix=e2e:", dir.file("stats")),
                               {.env = {"PICOLM_REDIS_PASSWORD=hush"}});
    EXPECT_TRUE(second.says(" positions from " + place + "/0\n")) << second;
    EXPECT_TRUE(second.says("\nSkipping ")) << second;
    EXPECT_EQ(second.out, first.out);
    const Outcome listed = run({"cache", "stat", url});
    EXPECT_EQ(listed.code, 0) << listed;
    EXPECT_EQ(listed.out.rfind(place + "/0: 1 prompts", 0), 0u) << listed;
    for (const std::string& text :
         {first.err, second.err, read_text(dir.file("stats")), listed.out, listed.err})
        EXPECT_EQ(text.find("hush"), std::string::npos) << text;
    const Outcome refused = run(args_for("redis://:hush-hush@" + place.substr(8), dir.file("x")));
    EXPECT_EQ(refused.code, 0) << refused;
    EXPECT_EQ(refused.out, first.out);
    EXPECT_TRUE(refused.says("no KV cache is used")) << refused;
    EXPECT_EQ(refused.err.find("hush"), std::string::npos) << refused;
}

// Two machines that share a server, each with a folder of its own.
TEST(CacheRedis, AFolderStandsInFrontOfTheServer) {
    if (!cache::redis_built()) GTEST_SKIP() << "built without hiredis";
    if (!RedisServer::installed()) GTEST_SKIP() << "redis-server is not installed";
    TempDir dir;
    auto server = std::make_unique<RedisServer>(std::vector<std::string>{});
    const std::string url = server->url();
    const auto with = [&](const std::string& folder) {
        std::vector<std::string> args = args_for(url, dir.file("stats"));
        args.insert(args.end(), {"--cache-dir", dir.file(folder), "--cache-limit", "20M"});
        return run(args);
    };
    const Outcome first = with("a");
    ASSERT_EQ(first.code, 0) << first;
    EXPECT_TRUE(first.says(" positions to " + dir.file("a") + " and " + url + "/0\n")) << first;
    const Outcome second = with("b");
    EXPECT_TRUE(second.says(" positions from " + dir.file("b") + " and " + url + "/0\n")) << second;
    EXPECT_TRUE(second.says("\nSkipping ")) << second;
    EXPECT_EQ(second.out, first.out);
    server.reset();
    for (const char* folder : {"a", "b"}) {
        const Outcome alone = with(folder);
        EXPECT_EQ(alone.code, 0) << alone;
        EXPECT_TRUE(alone.says("\nSkipping ")) << alone;
        EXPECT_FALSE(alone.says("warning")) << alone;
        EXPECT_EQ(alone.out, first.out);
    }
}

TEST(CacheRedis, AServerThatIsNotThereCostsOneWarning) {
    if (!cache::redis_built()) GTEST_SKIP() << "built without hiredis";
    TempDir dir;
    const Outcome o = run(args_for("redis://:hush@127.0.0.1:1", dir.file("stats")));
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_FALSE(o.out.empty());
    const size_t at = o.err.find("redis://127.0.0.1:1/0: ");
    ASSERT_NE(at, std::string::npos) << o;
    EXPECT_EQ(o.err.find("redis://", at + 1), std::string::npos) << o;
    EXPECT_EQ(o.err.find("hush"), std::string::npos) << o;
    EXPECT_NE(run({"cache", "ls", "redis://127.0.0.1:1"}).code, 0);
}

TEST(CacheRedis, AWrongAddressIsRefusedBeforeAnythingIsDone) {
    if (!cache::redis_built()) GTEST_SKIP() << "built without hiredis";
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{"--cache", "redis://:hush@host:port"},
          {"--cache", "redis://:hush@host", "--cache-limit", "1G"}}) {
        std::vector<std::string> args = {tiny_model(), "-p", "x", "-n", "1"};
        args.insert(args.end(), more.begin(), more.end());
        const Outcome o = run(args);
        EXPECT_EQ(o.code, 2) << o;
        EXPECT_EQ(o.err.find("hush"), std::string::npos) << o;
    }
}

}  // namespace
}  // namespace picolm::testing
