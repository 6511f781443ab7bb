#include "text/end_marks.h"

namespace picolm {
namespace {

// "</s>" and its like are also HTML tags or plain words in some vocabularies.
constexpr std::string_view kIfControl[] = {
    "</s>",
    "<eos>",
    "[EOS]",
    "[EOT]",
    "<EOT>",
    "_<EOT>",
    "\xE2\x96\x81<EOT>",
    "<|return|>",
    "<|call|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
};
constexpr std::string_view kAlways[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
};

}  // namespace

EndMark find_end_mark(std::string_view token_text) {
    if (token_text.size() < 4) return EndMark::none;
    for (const std::string_view mark : kAlways) {
        if (token_text == mark) return EndMark::always;
    }
    for (const std::string_view mark : kIfControl) {
        if (token_text == mark) return EndMark::if_control;
    }
    return EndMark::none;
}

}  // namespace picolm
