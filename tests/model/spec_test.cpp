// Case D6: metadata that contradict the tensors, or that no forward pass may follow. A valid random
// model is written again with one thing changed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "gguf/writer.h"
#include "model/forward.h"
#include "model/random_model.h"

namespace picolm {
namespace {

using Put = std::function<void(GgufWriter&, std::string_view key)>;

struct Edit {
    std::map<std::string, Put> keys;  // replaced, or added
    std::set<std::string> drop_keys;
    std::string drop_tensor;
    std::string add_tensor;                             // a vector of n_embd floats
    std::map<std::string, std::vector<float>> content;  // of F32 tensors
};

Put u32(uint32_t value) {
    return [=](GgufWriter& w, std::string_view key) { w.put_u32(key, value); };
}
Put f32(float value) {
    return [=](GgufWriter& w, std::string_view key) { w.put_f32(key, value); };
}
Put text(std::string value) {
    return [=](GgufWriter& w, std::string_view key) { w.put_string(key, value); };
}
Put flag(bool value) {
    return [=](GgufWriter& w, std::string_view key) { w.put_bool(key, value); };
}

// The value of an entry as it stands in the file, behind its type.
std::vector<uint8_t> stored(const MetaValue& v) {
    std::vector<uint8_t> out;
    const auto number = [&](uint64_t n, size_t size) {
        for (size_t i = 0; i < size; ++i) out.push_back(static_cast<uint8_t>(n >> (8 * i)));
    };
    if (v.type == MetaType::array) number(static_cast<uint64_t>(v.element), 4);
    if (v.type == MetaType::array) number(v.count, 8);
    if (v.type == MetaType::string) number(v.data.size(), 8);
    out.insert(out.end(), v.data.begin(), v.data.end());
    return out;
}

class SpecTest : public ::testing::Test {
  protected:
    std::vector<uint8_t> base, edited;

    void SetUp() override {
        RandomModelSpec spec;
        spec.type = "F32";
        base = std::move(*random_model_bytes(spec));
    }
    Result<Model> load(const Edit& edit) {
        const GgufFile file = std::move(*GgufFile::parse(base, "base"));
        GgufWriter w;
        std::map<std::string, Put> left = edit.keys;
        for (const GgufFile::Entry& e : file.metadata()) {
            const std::string key(e.key);
            if (edit.drop_keys.contains(key)) continue;
            if (const auto put = left.find(key); put != left.end()) {
                put->second(w, key);
                left.erase(put);
            } else {
                w.put_raw(key, e.value.type, stored(e.value));
            }
        }
        for (const auto& [key, put] : left) put(w, key);
        for (const TensorInfo& t : file.tensors()) {
            const std::string name(t.name);
            if (name == edit.drop_tensor) continue;
            Bytes data = t.data;
            if (const auto c = edit.content.find(name); c != edit.content.end())
                data = {reinterpret_cast<const uint8_t*>(c->second.data()),
                        c->second.size() * sizeof(float)};
            w.add_tensor(name, t.type, std::span(t.dims).first(t.n_dims),
                         [data](const GgufWriter::Sink& sink) { return sink(data); });
        }
        const std::vector<float> zeros(256);
        const uint64_t dims[] = {256};
        if (!edit.add_tensor.empty())
            w.add_tensor(edit.add_tensor, TensorType::f32, dims, [&](const GgufWriter::Sink& sink) {
                return sink({reinterpret_cast<const uint8_t*>(zeros.data()), 1024});
            });
        edited = w.to_bytes();
        Result<GgufFile> parsed = GgufFile::parse(edited, "edited");
        if (!parsed) return parsed.error();
        return load_model(*parsed);
    }
    void expect_error(const Edit& edit, ErrorKind kind, const char* part) {
        const Result<Model> model = load(edit);
        ASSERT_FALSE(model) << part;
        EXPECT_EQ(model.error().kind, kind) << model.error().text;
        EXPECT_NE(model.error().text.find(part), std::string::npos) << model.error().text;
    }
    void expect_bad_key(const char* suffix, Put put, const char* part) {
        Edit edit;
        edit.keys[std::string("llama.") + suffix] = std::move(put);
        expect_error(edit, ErrorKind::corrupt, part);
    }
};

TEST_F(SpecTest, UnchangedLoads) {
    const Result<Model> model = load({});
    ASSERT_TRUE(model) << model.error().text;
    EXPECT_EQ(model->spec.n_head, 8u);
}

TEST_F(SpecTest, D6_Numbers) {
    expect_bad_key("attention.head_count", u32(0), "head_count is 0");
    expect_bad_key("attention.head_count", u32(12), "cannot be split over 12 heads");
    expect_bad_key("attention.head_count_kv", u32(3), "cannot share 3 KV heads");
    expect_bad_key("attention.head_count_kv", u32(0), "head_count_kv is 0");
    expect_bad_key("rope.dimension_count", u32(31), "must be even");
    expect_bad_key("rope.dimension_count", u32(64), "must lie between");
    expect_bad_key("rope.freq_base", f32(0.0f), "rope.freq_base");
    expect_bad_key("rope.freq_base", f32(NAN), "rope.freq_base");
    expect_bad_key("attention.layer_norm_rms_epsilon", f32(0.0f), "epsilon");
    expect_bad_key("attention.layer_norm_rms_epsilon", f32(NAN), "epsilon");
    expect_bad_key("attention.key_length", u32(5000), "key_length is 5000");
    expect_bad_key("context_length", u32(1u << 31), "context_length is 2147483648");
    expect_bad_key("context_length", u32(0), "context_length is 0");
    expect_bad_key("block_count", u32(0), "block_count is 0");
    expect_bad_key("vocab_size", u32(513), "512 rows");
    expect_bad_key("embedding_length", u32(512), "token_embd.weight has shape [256, 512");
    expect_bad_key("feed_forward_length", u32(700), "ffn_gate.weight has shape");
    expect_bad_key("block_count", u32(3), "blk.2.attn_norm.weight is missing");
    expect_bad_key("block_count", text("two"), "block_count");
}

TEST_F(SpecTest, D6_TensorsAndArchitecture) {
    Edit edit;
    edit.drop_tensor = "blk.1.ffn_down.weight";
    expect_error(edit, ErrorKind::corrupt, "blk.1.ffn_down.weight is missing");
    edit = {};
    edit.drop_tensor = "token_embd.weight";
    expect_error(edit, ErrorKind::corrupt, "token_embd.weight is missing");
    edit = {};
    edit.add_tensor = "blk.0.attn_q_norm.weight";
    expect_error(edit, ErrorKind::unsupported, "blk.0.attn_q_norm.weight is not expected");
    edit = {};
    edit.keys["general.architecture"] = text("mamba");
    expect_error(edit, ErrorKind::unsupported,
                 "\"mamba\" is not supported; this program runs: llama");
    edit = {};
    edit.drop_keys = {"general.architecture"};
    expect_error(edit, ErrorKind::corrupt, "general.architecture is missing");
    edit = {};
    edit.drop_keys = {"llama.embedding_length"};
    expect_error(edit, ErrorKind::corrupt, "embedding_length is missing");
}

TEST_F(SpecTest, TermsThatWouldChangeResultsAreRefused) {
    const std::pair<const char*, Put> terms[] = {
        {"expert_count", u32(8)},
        {"attention.causal", flag(false)},
        {"logit_scale", f32(0.5f)},
        {"attn_logit_softcapping", f32(50.0f)},
        {"attention.sliding_window", u32(4096)},
        {"rope.scaling.attn_factor", f32(2.0f)},
        {"rope.scaling.type", text("yarn")},
    };
    for (const auto& [suffix, put] : terms) {
        Edit edit;
        edit.keys[std::string("llama.") + suffix] = put;
        expect_error(edit, ErrorKind::unsupported, "not supported");
    }
    Edit neutral;
    neutral.keys["llama.expert_count"] = u32(0);
    neutral.keys["llama.attention.causal"] = flag(true);
    neutral.keys["llama.rope.scaling.type"] = text("none");
    EXPECT_TRUE(load(neutral));
}

// One head of 8192 elements, by default: more than the forward pass has room for.
TEST_F(SpecTest, D6_AHeadThatIsTooLarge) {
    RandomModelSpec spec;
    spec.type = "Q8_0";
    spec.n_embd = 8192;
    spec.n_layer = 1;
    spec.n_head = spec.n_head_kv = 2;
    spec.n_ff = spec.n_vocab = 512;
    base = std::move(*random_model_bytes(spec));
    ASSERT_TRUE(load({}));
    Edit edit;
    edit.keys["llama.attention.head_count"] = edit.keys["llama.attention.head_count_kv"] = u32(1);
    for (const char* key : {"key_length", "value_length"})
        edit.drop_keys.insert(std::string("llama.attention.") + key);
    edit.drop_keys.insert("llama.rope.dimension_count");
    expect_error(edit, ErrorKind::corrupt, "a head of 8192 elements is larger than 4096");
}

// Damaged weights are an error that names the layer, never bytes that differ by CPU.
TEST_F(SpecTest, NonFiniteWeightsNameTheLayer) {
    const std::pair<const char*, const char*> places[] = {
        {"blk.0.attn_norm.weight", "layer 0"}, {"blk.1.ffn_norm.weight", "layer 1"},
        {"blk.0.ffn_down.weight", "layer 0"},  {"blk.1.ffn_down.weight", "layer 1"},
        {"blk.1.attn_v.weight", "layer 1"},    {"token_embd.weight", "the token embedding"},
        {"output.weight", "the output head"},  {"output_norm.weight", "the output norm"},
        {"blk.1.attn_norm.weight", "layer 1"},
    };
    for (const bool quantised : {false, true})
        for (const auto& [name, who] : places) {
            if (quantised && !std::string(name).ends_with("norm.weight")) continue;
            RandomModelSpec spec;
            spec.type = quantised ? "Q8_0" : "F32";
            base = std::move(*random_model_bytes(spec));
            const GgufFile file = std::move(*GgufFile::parse(base, "base"));
            const TensorInfo* t = file.tensor(name);
            ASSERT_TRUE(t) << name;
            Edit edit;
            std::vector<float>& values = edit.content[name];
            values.assign(t->data.size() / sizeof(float), 0.01f);
            for (size_t i = 0; i < values.size(); i += 256) values[i] = NAN;
            if (t->n_dims == 1) values[3] = INFINITY;
            const Result<Model> model = load(edit);
            ASSERT_TRUE(model) << model.error().text;
            ThreadPool pool(2);
            auto forward = std::move(*Forward::create(*model, **select_kernels(), pool, 16));
            KvSequence kv{KvGeometry(model->spec)};
            std::vector<float> hidden(256), logits(512);
            const std::vector<uint32_t> tokens = {1, 2, 3, 4, 5};
            Status status = forward->run(kv, tokens, 1, hidden.data());
            EXPECT_EQ(kv.n_positions(), status ? 5u : 0u);
            if (status) status = forward->output_head(hidden.data(), 1, logits.data());
            ASSERT_FALSE(status) << name;
            EXPECT_EQ(status.error().kind, ErrorKind::corrupt);
            EXPECT_TRUE(status.error().text.starts_with(who))
                << name << ": " << status.error().text;
        }
}

TEST_F(SpecTest, ValuesTooLargeForTheirTypeNameTheLayer) {
    const GgufFile file = std::move(*GgufFile::parse(base, "base"));
    const char* name = "blk.1.attn_v.weight";
    Edit edit;
    // As large as a half can be, many times over.
    edit.content[name].assign(file.tensor(name)->data.size() / sizeof(float), 1e9f);
    const Result<Model> model = load(edit);
    ASSERT_TRUE(model) << model.error().text;
    ThreadPool pool(2);
    auto forward = std::move(*Forward::create(*model, **select_kernels(), pool, 16));
    std::vector<float> hidden(256);
    const std::vector<uint32_t> tokens = {1, 2, 3, 4, 5};
    for (const KvType type : {KvType::q8_0, KvType::q4_0}) {
        KvSequence kv{KvGeometry(model->spec, {KvType::f16, type})};
        const Status status = forward->run(kv, tokens, 1, hidden.data());
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().kind, ErrorKind::corrupt);
        EXPECT_TRUE(status.error().text.starts_with("layer 1 gave a key or value"))
            << status.error().text;
        EXPECT_EQ(kv.n_positions(), 0u);
    }
}

// A key that f16 cannot hold: infinity would silently drop a position, or give NaN.
TEST_F(SpecTest, AKeyTooLargeForF16IsAnError) {
    for (const float scale : {1.0f, 1e6f}) {
        Edit edit;
        const GgufFile file = std::move(*GgufFile::parse(base, "base"));
        std::vector<float>& values = edit.content["blk.1.attn_k.weight"];
        values.assign(file.tensor("blk.1.attn_k.weight")->data.size() / sizeof(float), scale);
        const Result<Model> model = load(edit);
        ASSERT_TRUE(model);
        ThreadPool pool(1);
        auto forward = std::move(*Forward::create(*model, **select_kernels(), pool, 16));
        KvSequence kv{KvGeometry(model->spec)};
        std::vector<float> hidden(256);
        const std::vector<uint32_t> tokens = {1, 2, 3};
        const Status status = forward->run(kv, tokens, 1, hidden.data());
        ASSERT_EQ(status.has_value(), scale == 1.0f);
        if (!status) {
            EXPECT_TRUE(status.error().text.starts_with("layer 1 gave a key or value"))
                << status.error().text;
        }
    }
}

TEST(RopeTest, AnglesInDouble) {
    ModelSpec spec;
    spec.n_rot = 8;
    spec.rope_freq_base = 500000.0;
    spec.rope_freq_scale = 0.5;
    const float divisors[] = {1.0f, 2.0f, 4.0f, 8.0f};
    const RopeTable table(spec, divisors);
    std::vector<float> cos(8), sin(8);
    table.compute(1000, 2, cos.data(), sin.data());
    for (uint32_t i = 0; i < 4; ++i) {
        const double angle = 1001 * 0.5 * std::pow(500000.0, -2.0 * i / 8) / divisors[i];
        EXPECT_NEAR(cos[4 + i], std::cos(angle), 1e-7);
        EXPECT_NEAR(sin[4 + i], std::sin(angle), 1e-7);
    }
}

}  // namespace
}  // namespace picolm
