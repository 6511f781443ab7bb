#include "gguf/foreign_format.h"

#include <algorithm>
#include <string_view>

#include "base/format.h"

namespace picolm {
namespace {

using namespace std::string_view_literals;

constexpr const char* kConvert = "convert it to GGUF (llama.cpp's convert_hf_to_gguf.py does)";
constexpr const char* kOldGgml =
    "this is a model in a GGML format from before GGUF (2023): get a GGUF version of the model";

struct Magic {
    size_t offset;
    std::string_view bytes;
    const char* text;
};

constexpr Magic kMagics[] = {
    {0, "FUGG"sv, "this is a GGUF file with its byte order reversed: get a little-endian version"},
    // The old formats stored their name as a little-endian number, hence backwards.
    {0, "lmgg"sv, kOldGgml},
    {0, "fmgg"sv, kOldGgml},
    {0, "tjgg"sv, kOldGgml},
    {0, "algg"sv,
     "this is a LoRA adapter in an old GGML format, not a model: a GGUF model is needed"},
    {0, "KVCP"sv, "this is a prompt cache, not a model: pass it with --cache"},
    {0, "PCVK"sv, "this is a prompt cache, not a model: pass it with --cache"},
    {0, "version https://git-lfs"sv,
     "this is a Git LFS pointer, not the model itself: run `git lfs pull` in its repository, or "
     "download the file directly"},
    {0, "PK\x03\x04"sv,
     "this is a zip archive or a PyTorch checkpoint: if it holds a .gguf file unpack it, else get "
     "a GGUF version of the model"},
    {0, "\x1f\x8b"sv, "this is gzip-compressed: unpack it with gunzip first"},
    {0,
     "\xfd"
     "7zXZ"sv,
     "this is xz-compressed: unpack it with unxz first"},
    {0, "\x28\xb5\x2f\xfd"sv, "this is zstd-compressed: unpack it with unzstd first"},
    {0, "BZh"sv, "this is bzip2-compressed: unpack it with bunzip2 first"},
    {0, "7z\xbc\xaf"sv, "this is a 7z archive: unpack it first"},
    {257, "ustar"sv, "this is a tar archive: unpack it first"},
    {0,
     "\x7f"
     "ELF"sv,
     "this is a program, not a model: the model file goes first"},
    {0, "MZ"sv, "this is a Windows program, not a model: a .gguf file is needed"},
    {0, "\x80\x02"sv, "this is a Python pickle (old PyTorch checkpoint): get a GGUF version"},
    {0, "\x93NUMPY"sv, "this is a NumPy array, not a model: a .gguf file is needed"},
    {0, "\x89HDF"sv, "this is an HDF5 file (Keras): get a GGUF version of the model"},
    {4, "TFL3"sv, "this is a TensorFlow Lite model: get a GGUF version of the model"},
    {0, "%PDF"sv, "this is a PDF document, not a model"},
    {0, "#!"sv, "this is a script, not a model"},
};

std::string_view text_of(Bytes bytes, size_t max_len) {
    return {reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), max_len)};
}

bool has_at(std::string_view head, size_t offset, std::string_view magic) {
    return head.size() >= offset + magic.size() && head.substr(offset, magic.size()) == magic;
}

bool starts_with_ignoring_case(std::string_view text, std::string_view lower) {
    if (text.size() < lower.size()) return false;
    return std::equal(lower.begin(), lower.end(), text.begin(), [](char want, char c) {
        return want == (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    });
}

// A length, then a JSON object of that length.
bool is_safetensors(Bytes bytes) {
    ByteReader reader(bytes);
    const uint64_t header_size = reader.u64();
    const std::string_view open = reader.text(1);
    return open == "{" && header_size >= 2 && header_size <= (uint64_t{1} << 40);
}

bool is_plain_text(std::string_view head) {
    return std::all_of(head.begin(), head.end(), [](char c) {
        return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\r' || c == '\t';
    });
}

// Downloads that went wrong: web pages, error messages, JSON beside the model.
std::string describe_text(std::string_view head) {
    constexpr auto kBom = "\xEF\xBB\xBF"sv;
    if (has_at(head, 0, kBom)) head.remove_prefix(kBom.size());
    head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
    for (const std::string_view start : {"<!doctype"sv, "<html"sv, "<head"sv, "<!--"sv})
        if (starts_with_ignoring_case(head, start))
            return "this is a web page (HTML), not a model: the download got a page instead of the "
                   "file; use the direct link of the file (on Hugging Face /resolve/, not /blob/)";
    if (has_at(head, 0, "<?xml"))
        return "this is an XML document, often a server's error message saved by a download: \"" +
               printable(head, 120) + "\"";
    if (!is_plain_text(head)) return "";
    return "this is a text file, not a model; it starts with \"" + printable(head, 120) + "\"";
}

}  // namespace

std::string describe_foreign_format(Bytes bytes) {
    if (bytes.empty()) return "the file is empty: the download or copy has not happened";
    const std::string_view head = text_of(bytes, 512);
    for (const Magic& magic : kMagics)
        if (has_at(head, magic.offset, magic.bytes)) return magic.text;
    if (is_safetensors(bytes))
        return std::string("this is a safetensors file, the weights as they were trained: ") +
               kConvert + " or get a GGUF version of the model";
    if (std::all_of(head.begin(), head.end(), [](char c) { return c == '\0'; }))
        return "the file starts with zeros only: the download or copy has not finished";
    if (std::string text = describe_text(head); !text.empty()) return text;
    return format(
        "not a GGUF file (it starts with the bytes %02x %02x %02x %02x instead of \"GGUF\"): get a "
        "GGUF version of the model",
        bytes[0], bytes.size() > 1 ? bytes[1] : 0, bytes.size() > 2 ? bytes[2] : 0,
        bytes.size() > 3 ? bytes[3] : 0);
}

}  // namespace picolm
