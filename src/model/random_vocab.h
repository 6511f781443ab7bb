// A vocabulary in the SentencePiece layout made without any training: common English words and
// word-like syllables. Only random models use it; the tokenizer proper is in src/text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace picolm {

struct RandomVocab {
    std::vector<std::string> tokens;
    std::vector<float> scores;   // -(id): what comes first merges first
    std::vector<int32_t> types;  // 1 normal, 2 unknown, 3 control, 6 byte
};

inline constexpr uint32_t kMinRandomVocab = 512;
inline constexpr uint32_t kMaxRandomVocab = 1 << 20;

// Ids 0 <unk>, 1 <s>, 2 </s>, 3..258 the bytes, then pieces. Every prefix of a word is a piece too,
// so that merging from the left reaches it. REQUIRES: kMinRandomVocab <= n <= kMaxRandomVocab.
RandomVocab random_vocab(uint32_t n);

}  // namespace picolm
