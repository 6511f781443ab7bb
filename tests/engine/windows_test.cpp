#include "engine/windows.h"

#include <gtest/gtest.h>

namespace picolm {
namespace {

TEST(Windows, TheSecondHalfIsScored) {
    const Result<Windows> w = cut_into_windows(5000, 512, 0, 0);
    ASSERT_TRUE(w);
    EXPECT_EQ(*w, (Windows{512, 512, 257, 9}));
    EXPECT_EQ(w->n_scored_each(), 255u);  // as llama.cpp: 512 - 1 - 256
    EXPECT_EQ(w->n_scored(), 9u * 255);
    EXPECT_EQ(w->n_tokens(), 9u * 512);
    EXPECT_EQ(cut_into_windows(5000, 512, 0, 3)->n_windows, 3u);
    EXPECT_EQ(cut_into_windows(5000, 511, 0, 0)->first, 256u);
}

TEST(Windows, WithAStrideEachScoresItsEnd) {
    EXPECT_EQ(*cut_into_windows(1000, 100, 30, 0), (Windows{100, 30, 70, 31}));
    // The first token of a window has nothing in front of it.
    EXPECT_EQ(*cut_into_windows(1000, 100, 100, 0), (Windows{100, 100, 1, 10}));
    EXPECT_EQ(cut_into_windows(1000, 100, 1, 0)->n_windows, 901u);
}

TEST(Windows, ATextTooShortForTwoIsRefused) {
    EXPECT_TRUE(cut_into_windows(200, 100, 0, 0));
    EXPECT_TRUE(cut_into_windows(130, 100, 30, 0));
    const Result<Windows> w = cut_into_windows(199, 100, 0, 0);
    ASSERT_FALSE(w);
    EXPECT_EQ(w.error().text,
              "the text is too short: it has 199 tokens, and two windows of 100 need 200; give a "
              "longer text, or -c 99 at most");
    EXPECT_FALSE(cut_into_windows(129, 100, 30, 0));
    EXPECT_FALSE(cut_into_windows(0, 100, 0, 0));
    EXPECT_FALSE(cut_into_windows(1000, 3, 0, 0));
    EXPECT_FALSE(cut_into_windows(1000, 100, 101, 0));
}

}  // namespace
}  // namespace picolm
