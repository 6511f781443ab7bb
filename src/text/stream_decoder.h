// Tokens in, whole UTF-8 characters out: a character that is split over tokens is held back until
// it is complete. Bytes that can never become valid turn into U+FFFD, each maximal ill-formed part
// once.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace picolm {

class StreamDecoder {
  public:
    // at_text_start: encode() would put its space prefix here, so that one leading space is
    // dropped: at the start of a text, and behind a control or user-defined token; false where the
    // answer continues plain text.
    StreamDecoder(const Tokenizer& tokenizer, bool at_text_start);

    // What can be shown after this token: valid UTF-8, perhaps nothing.
    std::string push(TokenId id);
    // The end of the text: an incomplete tail becomes U+FFFD.
    std::string finish();

  private:
    const Tokenizer& tokenizer_;
    bool trim_space_;
    std::string held_;
};

}  // namespace picolm
