#include "cache/host_lookup.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace picolm::cache {
namespace {

using namespace std::chrono_literals;
using Addresses = std::vector<std::string>;

TEST(HostLookup, NumericAddressesAskNobody) {
    const HostLookup nobody = [](const std::string&) -> Result<Addresses> {
        ADD_FAILURE();
        return Error{ErrorKind::io, "asked"};
    };
    for (const char* host : {"127.0.0.1", "::1", "fe80::1"})
        EXPECT_EQ(*addresses_of(host, 1ms, nobody), Addresses{host});
}

TEST(HostLookup, AnAnswerInTimeIsHandedOn) {
    const HostLookup two = [](const std::string& name) -> Result<Addresses> {
        if (name != "here") return Error{ErrorKind::io, "not known"};
        return Addresses{"::1", "127.0.0.1"};
    };
    EXPECT_EQ(*addresses_of("here", 10s, two), (Addresses{"::1", "127.0.0.1"}));
    EXPECT_EQ(addresses_of("there", 10s, two).error().text, "not known");
    const auto local = addresses_of("localhost", 10s);
    ASSERT_TRUE(local) << local.error().text;
    for (const std::string& address : *local)
        EXPECT_TRUE(address == "127.0.0.1" || address == "::1") << address;
}

TEST(HostLookup, ALateAnswerIsNotWaitedFor) {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    const HostLookup slow = [done](const std::string&) -> Result<Addresses> {
        std::this_thread::sleep_for(400ms);
        *done = true;
        return Addresses{"127.0.0.1"};
    };
    const auto late = addresses_of("slow", 20ms, slow);
    EXPECT_FALSE(*done);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().text, "looking up the name takes more than 20 ms");
    while (!*done) std::this_thread::sleep_for(1ms);  // so that nothing outlives the test
}

}  // namespace
}  // namespace picolm::cache
