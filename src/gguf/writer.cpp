#include "gguf/writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace picolm {
namespace {

constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kVersion = 3;

void append(std::vector<uint8_t>& out, Bytes bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_number(std::vector<uint8_t>& out, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

void append_text(std::vector<uint8_t>& out, std::string_view text) {
    append_number(out, text.size(), 8);
    append(out, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

uint64_t byte_size(TensorType type, std::span<const uint64_t> dims) {
    const TensorTypeInfo& t = info(type);
    uint64_t n = dims[0] / t.block_size * t.block_bytes;
    for (const uint64_t dim : dims.subspan(1)) n *= dim;
    return n;
}

// A file that exists under its name only when it is whole.
class NewFile {
  public:
    explicit NewFile(const std::string& path)
        : path_(path), temporary_(path + format(".%ld.tmp", static_cast<long>(getpid()))) {}
    ~NewFile() {
        if (fd_ >= 0) close(fd_);
        if (created_) unlink(temporary_.c_str());
    }
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    Status open() {
        fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd_ < 0) return failed("create");
        created_ = true;
        buffer_.reserve(kBufferSize);
        return {};
    }
    Status write(Bytes bytes) {
        if (buffer_.size() + bytes.size() <= kBufferSize) {
            append(buffer_, bytes);
            return {};
        }
        TRY(flush());
        if (bytes.size() >= kBufferSize) return write_through(bytes);
        append(buffer_, bytes);
        return {};
    }
    Status commit() {
        TRY(flush());
        if (fsync(fd_) != 0) return failed("write");
        const int closed = close(std::exchange(fd_, -1));
        if (closed != 0) return failed("write");
        if (rename(temporary_.c_str(), path_.c_str()) != 0) return failed("rename to");
        created_ = false;
        return {};
    }

  private:
    static constexpr size_t kBufferSize = 1 << 20;

    Status flush() {
        TRY(write_through(buffer_));
        buffer_.clear();
        return {};
    }
    Status write_through(Bytes bytes) {
        while (!bytes.empty()) {
            const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return failed("write");
            bytes = bytes.subspan(static_cast<size_t>(n));
        }
        return {};
    }
    Error failed(const char* what) const {
        return {ErrorKind::io, format("cannot %s %s: %s", what, path_.c_str(), strerror(errno))};
    }

    std::string path_;
    std::string temporary_;
    std::vector<uint8_t> buffer_;
    int fd_ = -1;
    bool created_ = false;
};

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
    assert(alignment >= 8 && std::has_single_bit(alignment));
    if (alignment != kDefaultAlignment) put_u32("general.alignment", alignment);
}

void GgufWriter::put_key(std::string_view key, MetaType type) {
    append_text(kv_, key);
    append_number(kv_, static_cast<uint32_t>(type), 4);
    ++n_kv_;
}

void GgufWriter::put_u8(std::string_view key, uint8_t value) {
    put_key(key, MetaType::u8);
    append_number(kv_, value, 1);
}
void GgufWriter::put_i8(std::string_view key, int8_t value) {
    put_key(key, MetaType::i8);
    append_number(kv_, static_cast<uint8_t>(value), 1);
}
void GgufWriter::put_u16(std::string_view key, uint16_t value) {
    put_key(key, MetaType::u16);
    append_number(kv_, value, 2);
}
void GgufWriter::put_i16(std::string_view key, int16_t value) {
    put_key(key, MetaType::i16);
    append_number(kv_, static_cast<uint16_t>(value), 2);
}
void GgufWriter::put_u32(std::string_view key, uint32_t value) {
    put_key(key, MetaType::u32);
    append_number(kv_, value, 4);
}
void GgufWriter::put_i32(std::string_view key, int32_t value) {
    put_key(key, MetaType::i32);
    append_number(kv_, static_cast<uint32_t>(value), 4);
}
void GgufWriter::put_u64(std::string_view key, uint64_t value) {
    put_key(key, MetaType::u64);
    append_number(kv_, value, 8);
}
void GgufWriter::put_i64(std::string_view key, int64_t value) {
    put_key(key, MetaType::i64);
    append_number(kv_, static_cast<uint64_t>(value), 8);
}
void GgufWriter::put_f32(std::string_view key, float value) {
    put_key(key, MetaType::f32);
    append_number(kv_, std::bit_cast<uint32_t>(value), 4);
}
void GgufWriter::put_f64(std::string_view key, double value) {
    put_key(key, MetaType::f64);
    append_number(kv_, std::bit_cast<uint64_t>(value), 8);
}
void GgufWriter::put_bool(std::string_view key, bool value) {
    put_key(key, MetaType::boolean);
    append_number(kv_, value ? 1 : 0, 1);
}
void GgufWriter::put_string(std::string_view key, std::string_view value) {
    put_key(key, MetaType::string);
    append_text(kv_, value);
}

void GgufWriter::put_strings(std::string_view key, std::span<const std::string> values) {
    put_key(key, MetaType::array);
    append_number(kv_, static_cast<uint32_t>(MetaType::string), 4);
    append_number(kv_, values.size(), 8);
    for (const std::string& value : values) append_text(kv_, value);
}
void GgufWriter::put_f32s(std::string_view key, std::span<const float> values) {
    put_key(key, MetaType::array);
    append_number(kv_, static_cast<uint32_t>(MetaType::f32), 4);
    append_number(kv_, values.size(), 8);
    for (const float value : values) append_number(kv_, std::bit_cast<uint32_t>(value), 4);
}
void GgufWriter::put_i32s(std::string_view key, std::span<const int32_t> values) {
    put_key(key, MetaType::array);
    append_number(kv_, static_cast<uint32_t>(MetaType::i32), 4);
    append_number(kv_, values.size(), 8);
    for (const int32_t value : values) append_number(kv_, static_cast<uint32_t>(value), 4);
}
void GgufWriter::put_raw(std::string_view key, MetaType type, Bytes value) {
    put_key(key, type);
    append(kv_, value);
}

void GgufWriter::add_tensor(std::string_view name, TensorType type, std::span<const uint64_t> dims,
                            std::function<Status(const Sink&)> fill) {
    tensors_.push_back({std::string(name), type, {dims.begin(), dims.end()}, std::move(fill)});
}

std::vector<uint8_t> GgufWriter::header() const {
    std::vector<uint8_t> out = {'G', 'G', 'U', 'F'};
    append_number(out, kVersion, 4);
    append_number(out, tensors_.size(), 8);
    append_number(out, n_kv_, 8);
    append(out, kv_);
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors_) {
        append_text(out, tensor.name);
        append_number(out, tensor.dims.size(), 4);
        for (const uint64_t dim : tensor.dims) append_number(out, dim, 8);
        append_number(out, static_cast<uint32_t>(tensor.type), 4);
        append_number(out, offset, 8);
        const uint64_t n_bytes = byte_size(tensor.type, tensor.dims);
        offset += (n_bytes + alignment_ - 1) / alignment_ * alignment_;
    }
    while (!tensors_.empty() && out.size() % alignment_ != 0) out.push_back(0);
    return out;
}

Status GgufWriter::emit(const Sink& sink) const {
    for (const Tensor& tensor : tensors_) {
        const bool shaped = !tensor.dims.empty() && tensor.dims.size() <= 4;
        if (!shaped || tensor.dims[0] % info(tensor.type).block_size != 0 ||
            byte_size(tensor.type, tensor.dims) == 0)
            return Error{ErrorKind::invalid, format("the tensor \"%s\" has a shape that %s cannot "
                                                    "have",
                                                    tensor.name.c_str(), info(tensor.type).name)};
    }
    TRY(sink(header()));
    for (const Tensor& tensor : tensors_) TRY(emit_tensor(tensor, sink));
    return {};
}

Status GgufWriter::emit_tensor(const Tensor& tensor, const Sink& sink) const {
    const uint64_t expected = byte_size(tensor.type, tensor.dims);
    uint64_t written = 0;
    TRY(tensor.fill([&](Bytes bytes) -> Status {
        written += bytes.size();
        if (written > expected) return {};
        return sink(bytes);
    }));
    if (written != expected)
        return Error{ErrorKind::invalid,
                     format("the tensor \"%s\" has %llu bytes, its fill gave %llu",
                            tensor.name.c_str(), static_cast<unsigned long long>(expected),
                            static_cast<unsigned long long>(written))};
    const uint64_t n_padding = (alignment_ - expected % alignment_) % alignment_;
    const std::vector<uint8_t> padding(static_cast<size_t>(n_padding));
    return sink(padding);
}

Status GgufWriter::write(const std::string& path) const {
    NewFile file(path);
    TRY(file.open());
    TRY(emit([&](Bytes bytes) { return file.write(bytes); }));
    return file.commit();
}

std::vector<uint8_t> GgufWriter::to_bytes() const {
    std::vector<uint8_t> out;
    const Status status = emit([&](Bytes bytes) -> Status {
        append(out, bytes);
        return {};
    });
    assert(status);
    if (!status) out.clear();
    return out;
}

}  // namespace picolm
