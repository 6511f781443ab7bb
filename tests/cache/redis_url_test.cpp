// The address of a server: what is understood, what is refused, and that no password is shown.
#include "cache/redis_url.h"

#include <gtest/gtest.h>

namespace picolm::testing {
namespace {

using cache::parse_redis_url;
using cache::RedisAddress;

TEST(RedisUrl, OnlyAHost) {
    const auto a = parse_redis_url("redis://cache.local");
    ASSERT_TRUE(a);
    EXPECT_EQ(a->host, "cache.local");
    EXPECT_EQ(a->port, 6379);
    EXPECT_EQ(a->db, 0u);
    EXPECT_EQ(a->prefix, "picolm:");
    EXPECT_EQ(a->ttl_seconds, 0u);
    EXPECT_EQ(a->timeout_ms, 250u);
    EXPECT_TRUE(a->user.empty() && a->password.empty());
    EXPECT_EQ(a->shown(), "redis://cache.local:6379/0");
}

TEST(RedisUrl, Everything) {
    const auto a = parse_redis_url(
        "redis://me:p%40ss%3aw%2Frd@10.0.0.7:7000/3?prefix=kv%3A&ttl=3600&timeout=1000");
    ASSERT_TRUE(a);
    EXPECT_EQ(a->user, "me");
    EXPECT_EQ(a->password, "p@ss:w/rd");
    EXPECT_EQ(a->host, "10.0.0.7");
    EXPECT_EQ(a->port, 7000);
    EXPECT_EQ(a->db, 3u);
    EXPECT_EQ(a->prefix, "kv:");
    EXPECT_EQ(a->ttl_seconds, 3600u);
    EXPECT_EQ(a->timeout_ms, 1000u);
    EXPECT_EQ(a->shown(), "redis://10.0.0.7:7000/3");
}

TEST(RedisUrl, PartsThatMayBeLeftOut) {
    const auto only_password = parse_redis_url("redis://:secret@host/");
    ASSERT_TRUE(only_password);
    EXPECT_EQ(only_password->user, "");
    EXPECT_EQ(only_password->password, "secret");
    EXPECT_EQ(parse_redis_url("redis://a:b@c@host")->password, "b@c");
    EXPECT_EQ(parse_redis_url("redis://host?ttl=5")->ttl_seconds, 5u);
    EXPECT_EQ(parse_redis_url("redis://host/?")->db, 0u);
}

TEST(RedisUrl, Ipv6StandsInBrackets) {
    const auto a = parse_redis_url("redis://u:p@[::1]:7001/2");
    ASSERT_TRUE(a);
    EXPECT_EQ(a->host, "::1");
    EXPECT_EQ(a->port, 7001);
    EXPECT_EQ(a->shown(), "redis://[::1]:7001/2");
    EXPECT_EQ(parse_redis_url("redis://[fe80::2]")->port, 6379);
}

TEST(RedisUrl, WhatIsWrongIsSaidWithoutThePassword) {
    for (const char* text : {"redis://",
                             "redis://:6379",
                             "redis://h:0",
                             "redis://h:65536",
                             "redis://h:1x",
                             "redis://h:",
                             "redis://::1",
                             "redis://[::1",
                             "redis://[::1]x",
                             "redis://h/x",
                             "redis://h/-1",
                             "redis://h?ttl=0",
                             "redis://h?ttl=",
                             "redis://h?timeout=0",
                             "redis://h?timeout=99999",
                             "redis://h?color=red",
                             "redis://h?prefix=",
                             "redis://u:hu%sh@h",
                             "redis://u:hush%4@h",
                             "redis://u:hush%00@h",
                             "redis://u:hush/x@h",
                             "redis://u:hush?x@h",
                             "redis://u:hush@h:port",
                             "rediss://u:hush@h"}) {
        const auto a = parse_redis_url(text);
        ASSERT_FALSE(a) << text;
        EXPECT_EQ(a.error().text.find("hu"), std::string::npos) << a.error().text;
        EXPECT_NE(a.error().text.find("redis://"), std::string::npos) << a.error().text;
    }
}

}  // namespace
}  // namespace picolm::testing
