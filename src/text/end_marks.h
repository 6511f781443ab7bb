// The texts with which known models end their turn, for files that do not name all of their
// end-of-generation ids.
#pragma once

#include <string_view>

namespace picolm {

enum class EndMark {
    none,
    if_control,  // ends generation when the file calls the token a control token
    always,      // also when it does not: some converters type these marks wrongly, and then they
                 // count as control tokens, so that text from a user cannot spell them
};

EndMark find_end_mark(std::string_view token_text);

}  // namespace picolm
