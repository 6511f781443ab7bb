#include "app/prompt.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/format.h"

namespace picolm::app {
namespace {

// Several times what the longest context can hold.
constexpr size_t kMaxTextBytes = size_t{64} << 20;

Error cannot_read(const std::string& what, const std::string& from, int error) {
    return {ErrorKind::io, format("cannot read the %s from %s: %s", what.c_str(), from.c_str(),
                                  std::strerror(error))};
}

Result<std::string> read_descriptor(int fd, const std::string& what, const std::string& from) {
    std::string text;
    size_t size = 0;
    for (;;) {
        if (size == text.size()) text.resize(std::max<size_t>(4096, 2 * size));
        const ssize_t n = read(fd, text.data() + size, text.size() - size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cannot_read(what, from, errno);
        if (n == 0) break;
        size += static_cast<size_t>(n);
        if (size > kMaxTextBytes)
            return Error{ErrorKind::invalid,
                         format("the %s from %s is longer than %s, which is the most that is read",
                                what.c_str(), from.c_str(), format_bytes(kMaxTextBytes).c_str())};
    }
    text.resize(size);
    return text;
}

// nullopt or "-": standard input.
Result<std::string> read_source(const std::string& what, const std::optional<std::string>& path) {
    if (!path || *path == "-") return read_descriptor(STDIN_FILENO, what, "standard input");
    const int fd = open(path->c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cannot_read(what, *path, errno);
    Result<std::string> text = read_descriptor(fd, what, *path);
    close(fd);
    return text;
}

}  // namespace

Result<std::string> read_prompt(const RunOptions& options) {
    const char* how = "give one with -p TEXT, -f FILE or on standard input";
    if (!options.prompt && !options.prompt_file && isatty(STDIN_FILENO))
        return Error{ErrorKind::invalid, std::string("there is no prompt: ") + how};
    TRY(std::string text, options.prompt ? Result<std::string>(*options.prompt)
                                         : read_source("prompt", options.prompt_file));
    if (text.empty()) return Error{ErrorKind::invalid, std::string("the prompt is empty: ") + how};
    return text;
}

Result<std::string> read_text(const std::optional<std::string>& path) {
    if (!path && isatty(STDIN_FILENO))
        return Error{ErrorKind::invalid,
                     "there is no text: give one with -f FILE or on standard input"};
    return read_source("text", path);
}

Result<std::vector<TokenId>> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt,
                                           bool no_bos, Console& console) {
    TRY(std::vector<TokenId> tokens,
        tokenizer.encode(prompt, {.add_special = !no_bos, .parse_special = true}));
    const bool two = !no_bos && tokenizer.add_bos() && tokens.size() >= 2 &&
                     tokens[0] == *tokenizer.bos() && tokens[1] == tokens[0];
    if (two) {
        console.warning(format("the prompt begins with %s itself, so none was put in front of it",
                               std::string(tokenizer.token_text(tokens[0])).c_str()));
        tokens.erase(tokens.begin());
    }
    return tokens;
}

}  // namespace picolm::app
