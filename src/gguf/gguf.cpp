#include "gguf/gguf.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/format.h"
#include "gguf/foreign_format.h"

namespace picolm {
namespace {

using ull = unsigned long long;

// Far above any real model, and low enough that the tables for them stay small.
constexpr uint64_t kMaxEntries = 1 << 18;
constexpr uint64_t kMaxKeyLength = 65535;  // the specification's limit
constexpr uint64_t kMaxNameLength = 255;   // the specification says 64; some writers go beyond
constexpr uint32_t kMaxAlignment = 1 << 20;
constexpr int kMaxArrayDepth = 3;
// A product below this times any block's bytes per element still fits 64 bits.
constexpr uint64_t kMaxElements = uint64_t{1} << 60;

// The fewest bytes that an entry can take: key "k" and a one-byte value; name "t", one dimension.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

struct MetaTypeFacts {
    const char* name;
    uint32_t size;  // bytes of a value; 0: it says its own length
};
constexpr MetaTypeFacts kMetaTypes[] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};
constexpr uint32_t kArray = static_cast<uint32_t>(MetaType::array);
constexpr uint32_t kString = static_cast<uint32_t>(MetaType::string);
constexpr uint32_t kBool = static_cast<uint32_t>(MetaType::boolean);

std::string quoted(std::string_view text) {
    return '"' + printable(text) + '"';
}

}  // namespace

const char* meta_type_name(MetaType type) {
    const uint32_t id = static_cast<uint32_t>(type);
    return id < std::size(kMetaTypes) ? kMetaTypes[id].name : "unknown";
}

// Fills a GgufFile whose bytes_ and name_ are set, in the order of the file.
class GgufParser {
  public:
    explicit GgufParser(GgufFile& file) : file_(file), reader_(file.bytes_) {}

    Status run() {
        TRY(read_header());
        TRY(read_metadata());
        TRY(apply_settings());
        TRY(read_tensor_table());
        for (TensorInfo& tensor : file_.tensors_) TRY(place(tensor));
        return check_overlap();
    }

  private:
    Error error(ErrorKind kind, const std::string& text) const {
        return {kind, file_.name_ + ": " + text};
    }
    Error corrupt(const std::string& text) const { return error(ErrorKind::corrupt, text); }
    ull size() const { return file_.bytes_.size(); }

    Status read_header() {
        if (reader_.text(4) != "GGUF")
            return error(ErrorKind::unsupported, describe_foreign_format(file_.bytes_));
        file_.version_ = reader_.u32();
        TRY(check_version());
        n_tensors_ = reader_.u64();
        n_entries_ = reader_.u64();
        if (!reader_.ok())
            return corrupt(
                format("the file ends inside its header (%llu bytes): incomplete, "
                       "download or copy it again",
                       size()));
        TRY(check_count("metadata entries", n_entries_, kMinEntryBytes));
        return check_count("tensors", n_tensors_, kMinTensorBytes);
    }

    Status check_version() const {
        const uint32_t version = file_.version_;
        if (!reader_.ok() || version == 2 || version == 3) return {};
        if (version == 1)
            return error(ErrorKind::unsupported,
                         "GGUF version 1 (a format of August 2023) is not read: get a newer "
                         "version of the model, or convert it with llama.cpp");
        if (version != 0 && (version & 0xFFFF) == 0)
            return error(ErrorKind::unsupported,
                         "this is a big-endian GGUF file: get a little-endian version, or convert "
                         "it with gguf_convert_endian.py of llama.cpp");
        if (version == 0) return corrupt("GGUF version 0 does not exist: the file is damaged");
        return error(
            ErrorKind::unsupported,
            format("GGUF version %u is newer than this program, which reads 2 and 3", version));
    }

    Status check_count(const char* what, uint64_t count, uint64_t min_bytes) const {
        if (count > reader_.remaining() / min_bytes)
            return corrupt(
                format("the header promises %llu %s, which %llu bytes cannot hold: the "
                       "file is damaged or incomplete",
                       static_cast<ull>(count), what, size()));
        if (count > kMaxEntries)
            return error(ErrorKind::unsupported,
                         format("%llu %s are beyond the limit of %llu", static_cast<ull>(count),
                                what, static_cast<ull>(kMaxEntries)));
        return {};
    }

    Status read_metadata() {
        for (uint64_t i = 0; i < n_entries_; ++i) {
            const std::string where = format("metadata entry %llu of %llu", static_cast<ull>(i + 1),
                                             static_cast<ull>(n_entries_));
            const uint64_t length = reader_.u64();
            if (reader_.ok() && (length == 0 || length > kMaxKeyLength))
                return corrupt(format("%s has a key of %llu bytes; 1 to %llu are possible",
                                      where.c_str(), static_cast<ull>(length),
                                      static_cast<ull>(kMaxKeyLength)));
            const std::string_view key = reader_.text(length);
            const uint32_t type = reader_.u32();
            if (!reader_.ok()) return ends_inside(where);
            TRY(MetaValue value, read_value(key, type));
            if (!file_.metadata_index_.emplace(key, file_.metadata_.size()).second)
                return corrupt("the metadata key " + quoted(key) + " appears twice");
            file_.metadata_.push_back({key, value});
        }
        return {};
    }

    Error ends_inside(const std::string& where) const {
        return corrupt(
            format("the file ends inside %s (it has %llu bytes): incomplete or damaged, "
                   "download or copy it again",
                   where.c_str(), size()));
    }

    Result<MetaValue> read_value(std::string_view key, uint32_t type) {
        TRY(check_value_type(key, type));
        MetaValue value{static_cast<MetaType>(type), static_cast<MetaType>(type), 1, {}};
        if (type == kString) {
            value.data = reader_.take(reader_.u64());
        } else if (type == kArray) {
            const uint32_t element = reader_.u32();
            value.count = reader_.u64();
            if (reader_.ok()) TRY(check_value_type(key, element));
            value.element = static_cast<MetaType>(element);
            const size_t start = reader_.position();
            TRY(skip_elements(key, element, value.count, 1));
            value.data = file_.bytes_.subspan(start, reader_.position() - start);
        } else {
            value.data = reader_.take(kMetaTypes[type].size);
            if (type == kBool) TRY(check_bools(key, value.data));
        }
        if (!reader_.ok()) return ends_inside("the value of the metadata key " + quoted(key));
        return value;
    }

    Status check_value_type(std::string_view key, uint32_t type) const {
        if (type < std::size(kMetaTypes)) return {};
        return corrupt(format("the metadata key %s has the value type %u, which does not exist",
                              quoted(key).c_str(), type));
    }

    Status check_bools(std::string_view key, Bytes values) const {
        if (std::all_of(values.begin(), values.end(), [](uint8_t b) { return b <= 1; })) return {};
        return corrupt("the metadata key " + quoted(key) + " holds a bool that is neither 0 nor 1");
    }

    // Leaves the reader behind the elements, or failed when they run past the end.
    Status skip_elements(std::string_view key, uint32_t element, uint64_t count, int depth) {
        TRY(check_value_type(key, element));
        if (element == kString) {
            for (uint64_t i = 0; i < count && reader_.ok(); ++i) reader_.take(reader_.u64());
        } else if (element == kArray) {
            if (depth == kMaxArrayDepth)
                return error(ErrorKind::unsupported,
                             format("the metadata key %s nests arrays more than %d deep",
                                    quoted(key).c_str(), kMaxArrayDepth));
            for (uint64_t i = 0; i < count && reader_.ok(); ++i) {
                const uint32_t inner = reader_.u32();
                const uint64_t n = reader_.u64();
                if (reader_.ok()) TRY(skip_elements(key, inner, n, depth + 1));
            }
        } else {
            const Bytes values = reader_.take_array(count, kMetaTypes[element].size);
            if (element == kBool) TRY(check_bools(key, values));
        }
        return {};
    }

    // The two keys that say how the file itself is to be read.
    Status apply_settings() {
        TRY(const auto alignment, file_.get_uint("general.alignment"));
        if (alignment) {
            const uint64_t a = *alignment;
            if (a < 8 || a > kMaxAlignment || (a & (a - 1)) != 0)
                return corrupt(
                    format("general.alignment is %llu; it must be a power of two from 8 "
                           "to %u",
                           static_cast<ull>(a), kMaxAlignment));
            file_.alignment_ = static_cast<uint32_t>(a);
        }
        TRY(const auto n_parts, file_.get_uint("split.count"));
        if (n_parts && *n_parts > 1) {
            TRY(const auto number, file_.get_uint("split.no"));
            return error(
                ErrorKind::unsupported,
                format("this is part %llu of a model split into %llu files: join them "
                       "with `llama-gguf-split --merge FIRST-PART JOINED.gguf`",
                       static_cast<ull>(number.value_or(0)) + 1, static_cast<ull>(*n_parts)));
        }
        return {};
    }

    Status read_tensor_table() {
        for (uint64_t i = 0; i < n_tensors_; ++i) {
            const std::string where = format("entry %llu of %llu of the tensor table",
                                             static_cast<ull>(i + 1), static_cast<ull>(n_tensors_));
            TRY(TensorInfo tensor, read_tensor(where));
            if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second)
                return corrupt("the tensor " + quoted(tensor.name) + " appears twice");
            file_.tensors_.push_back(tensor);
        }
        file_.header_size_ = reader_.position();
        const uint64_t mask = file_.alignment_ - 1;
        data_start_ = (file_.header_size_ + mask) & ~mask;
        return {};
    }

    // Everything but `data`; `offset` still counts from the start of the tensor data.
    Result<TensorInfo> read_tensor(const std::string& where) {
        TensorInfo tensor{};
        const uint64_t length = reader_.u64();
        if (reader_.ok() && (length == 0 || length > kMaxNameLength))
            return corrupt(format("%s has a name of %llu bytes; 1 to %llu are possible",
                                  where.c_str(), static_cast<ull>(length),
                                  static_cast<ull>(kMaxNameLength)));
        tensor.name = reader_.text(length);
        tensor.n_dims = reader_.u32();
        if (reader_.ok() && (tensor.n_dims < 1 || tensor.n_dims > tensor.dims.size()))
            return corrupt(format("the tensor %s has %u dimensions; 1 to %zu are possible",
                                  quoted(tensor.name).c_str(), tensor.n_dims, tensor.dims.size()));
        tensor.dims.fill(1);
        for (size_t i = 0; reader_.ok() && i < tensor.n_dims; ++i) tensor.dims[i] = reader_.u64();
        const uint32_t type = reader_.u32();
        tensor.offset = reader_.u64();
        if (!reader_.ok()) return ends_inside(where);
        const TensorTypeInfo* known = find_tensor_type(type);
        if (!known) return unknown_type(tensor.name, type);
        tensor.type = known->type;
        return tensor;
    }

    Error unknown_type(std::string_view tensor, uint32_t type) const {
        const char* name = ggml_type_name(type);
        if (!name)
            return corrupt(
                format("the tensor %s has the type %u, which is not known to exist: the "
                       "file is damaged or newer than this program",
                       quoted(tensor).c_str(), type));
        return error(ErrorKind::unsupported,
                     format("the tensor %s has the type %s, which this program cannot compute "
                            "with: use another quantisation of the model, such as Q4_K_M or Q8_0",
                            quoted(tensor).c_str(), name));
    }

    Result<uint64_t> byte_size(const TensorInfo& tensor) const {
        const std::string name = quoted(tensor.name);
        uint64_t n = 1;
        for (const uint64_t dim : tensor.dims) {
            if (dim == 0) return corrupt("the tensor " + name + " has a dimension of 0");
            if (dim > kMaxElements / n)
                return corrupt(
                    format("the tensor %s claims %llu x %llu x %llu x %llu elements, "
                           "more than any file can hold",
                           name.c_str(), static_cast<ull>(tensor.dims[0]),
                           static_cast<ull>(tensor.dims[1]), static_cast<ull>(tensor.dims[2]),
                           static_cast<ull>(tensor.dims[3])));
            n *= dim;
        }
        const TensorTypeInfo& type = info(tensor.type);
        if (tensor.dims[0] % type.block_size != 0)
            return corrupt(
                format("the tensor %s has rows of %llu elements, but %s comes in blocks "
                       "of %u",
                       name.c_str(), static_cast<ull>(tensor.dims[0]), type.name, type.block_size));
        return n / type.block_size * type.block_bytes;
    }

    Status place(TensorInfo& tensor) const {
        TRY(const uint64_t n_bytes, byte_size(tensor));
        if (tensor.offset % file_.alignment_ != 0)
            return corrupt(format(
                "the tensor %s starts at offset %llu, which is no multiple of "
                "the alignment %u",
                quoted(tensor.name).c_str(), static_cast<ull>(tensor.offset), file_.alignment_));
        if (tensor.offset > kMaxElements)
            return corrupt(format("the tensor %s starts at offset %llu, the file has %llu bytes",
                                  quoted(tensor.name).c_str(), static_cast<ull>(tensor.offset),
                                  size()));
        const uint64_t begin = data_start_ + tensor.offset;
        if (begin > size() || n_bytes > size() - begin)
            return corrupt(
                format("tensor %s needs bytes %llu..%llu, the file has %llu: it is "
                       "incomplete, download or copy it again",
                       quoted(tensor.name).c_str(), static_cast<ull>(begin),
                       static_cast<ull>(begin + n_bytes), size()));
        tensor.offset = begin;
        tensor.data =
            file_.bytes_.subspan(static_cast<size_t>(begin), static_cast<size_t>(n_bytes));
        return {};
    }

    Status check_overlap() const {
        std::vector<const TensorInfo*> order;
        order.reserve(file_.tensors_.size());
        for (const TensorInfo& tensor : file_.tensors_) order.push_back(&tensor);
        std::sort(order.begin(), order.end(),
                  [](const auto* a, const auto* b) { return a->offset < b->offset; });
        for (size_t i = 1; i < order.size(); ++i) {
            const TensorInfo& a = *order[i - 1];
            const TensorInfo& b = *order[i];
            if (b.offset - a.offset < a.data.size())
                return corrupt("the tensors " + quoted(a.name) + " and " + quoted(b.name) +
                               " overlap");
        }
        return {};
    }

    GgufFile& file_;
    ByteReader reader_;
    uint64_t n_tensors_ = 0;
    uint64_t n_entries_ = 0;
    uint64_t data_start_ = 0;
};

Result<GgufFile> GgufFile::open(const std::string& path) {
    TRY(MappedFile mapping, MappedFile::open(path));
    TRY(GgufFile file, parse(mapping.bytes(), path));
    file.mapping_ = std::move(mapping);
    return file;
}

Result<GgufFile> GgufFile::parse(Bytes bytes, std::string name) {
    GgufFile file;
    file.bytes_ = bytes;
    file.name_ = std::move(name);
    TRY(GgufParser(file).run());
    return file;
}

const TensorInfo* GgufFile::tensor(std::string_view name) const {
    const auto found = tensor_index_.find(name);
    return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const MetaValue* GgufFile::find(std::string_view key) const {
    const auto found = metadata_index_.find(key);
    return found == metadata_index_.end() ? nullptr : &metadata_[found->second].value;
}

}  // namespace picolm
