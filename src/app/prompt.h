// Where the prompt comes from, and its tokens. Its bytes are never changed.
#pragma once

#include <string>
#include <vector>

#include "app/console.h"
#include "app/options.h"
#include "text/tokenizer.h"

namespace picolm::app {

// From -p, from -f, or from standard input. invalid: none of them, or no byte in it.
Result<std::string> read_prompt(const RunOptions& options);

// The text that is only measured: from a file, or from standard input ("-" or nullopt).
Result<std::string> read_text(const std::optional<std::string>& path);

// With the special tokens that the model asks for, and one beginning-of-text token where the prompt
// brings its own.
Result<std::vector<TokenId>> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt,
                                           bool no_bos, Console& console);

}  // namespace picolm::app
