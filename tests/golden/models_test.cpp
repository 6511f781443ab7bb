// Whole models against reference logits and greedy continuations (the golden folder's README says
// how exact they are).
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "gguf/gguf.h"
#include "model/forward.h"
#include "support.h"

namespace picolm {
namespace {

using testing::golden_dir;

struct Runner {
    GgufFile file;
    Model model;
    ThreadPool pool{2};
    std::unique_ptr<Forward> forward;
    KvSequence kv;
    std::vector<float> hidden, logits;

    static std::unique_ptr<Runner> open(const std::string& path) {
        Result<GgufFile> file = GgufFile::open(path);
        if (!file) ADD_FAILURE() << file.error().text;
        if (!file) return nullptr;
        Result<Model> model = load_model(*file);
        if (!model) ADD_FAILURE() << model.error().text;
        if (!model) return nullptr;
        return std::unique_ptr<Runner>(new Runner(std::move(*file), std::move(*model)));
    }
    // Logits of the last token: [n_vocab].
    const std::vector<float>& run(std::span<const uint32_t> tokens) {
        hidden.resize(model.spec.n_embd);
        logits.resize(model.spec.n_vocab);
        const Status ran = forward->run(kv, tokens, 1, hidden.data());
        if (!ran) ADD_FAILURE() << ran.error().text;
        const Status head = forward->output_head(hidden.data(), 1, logits.data());
        if (!head) ADD_FAILURE() << head.error().text;
        return logits;
    }

  private:
    Runner(GgufFile f, Model m)
        : file(std::move(f)), model(std::move(m)), kv(KvGeometry(model.spec)) {
        forward = std::move(*Forward::create(model, **select_kernels(), pool, 64));
    }
};

uint32_t argmax(std::span<const float> v) {
    return static_cast<uint32_t>(std::max_element(v.begin(), v.end()) - v.begin());
}

double rms(std::span<const float> v) {
    double sum = 0;
    for (const float x : v) sum += double{x} * x;
    return std::sqrt(sum / static_cast<double>(v.size()));
}

// RMS of the difference over RMS of the reference.
double relative_error(std::span<const float> got, std::span<const float> want) {
    std::vector<float> difference(got.size());
    for (size_t i = 0; i < got.size(); ++i) difference[i] = got[i] - want[i];
    return rms(difference) / rms(want);
}

double limit_for(const std::string& name) {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    const bool real = has("stories");
    if (has("-f32")) return 1e-3;
    if (has("-bf16")) return 5e-3;
    if (has("-f16")) return 3e-3;
    if (has("_k") || has("iq4_xs")) return 0.05;
    return real ? 0.015 : 0.035;
}

std::vector<std::string> golden_models() {
    std::vector<std::string> names;
    if (golden_dir().empty()) return names;
    for (const auto& entry : std::filesystem::directory_iterator(golden_dir())) {
        const std::string stem = entry.path().stem();
        if (entry.path().extension() == ".json" && !stem.starts_with("tokens-"))
            names.push_back(stem);
    }
    std::sort(names.begin(), names.end());
    return names;
}

class GoldenModelTest : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        path = golden_dir() + "/" + GetParam();
        spec = nlohmann::json::parse(testing::read_text(path + ".json"));
        prompt = spec["prompt_tokens"].get<std::vector<uint32_t>>();
        const Result<GgufFile> file = GgufFile::open(path + ".gguf");
        ASSERT_TRUE(file) << file.error().text;
        const auto arch = file->get_string("general.architecture");
        if (**arch != "llama") GTEST_SKIP() << "architecture " << **arch;
    }
    std::string path;
    nlohmann::json spec;
    std::vector<uint32_t> prompt;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenModelTest);
INSTANTIATE_TEST_SUITE_P(Golden, GoldenModelTest, ::testing::ValuesIn(golden_models()),
                         [](const auto& param) {
                             std::string name = param.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST_P(GoldenModelTest, LogitsNearIdeal) {
    const std::vector<float> ideal = testing::read_array<float>(path + ".ideal.bin");
    auto runner = Runner::open(path + ".gguf");
    ASSERT_TRUE(runner);
    const size_t n_vocab = runner->model.spec.n_vocab;
    const bool every_position = ideal.size() > n_vocab;
    double worst = 0;
    for (size_t i = 0; i < prompt.size(); ++i) {
        const std::vector<float>& got = runner->run({&prompt[i], 1});
        if (!every_position && i + 1 < prompt.size()) continue;
        const std::span<const float> want(&ideal[every_position ? i * n_vocab : 0], n_vocab);
        worst = std::max(worst, relative_error(got, want));
    }
    RecordProperty("relative_error", std::to_string(worst));
    EXPECT_LT(worst, limit_for(GetParam()));
    std::printf("%s: relative error %.5f, limit %.4f\n", GetParam().c_str(), worst,
                limit_for(GetParam()));
}

TEST_P(GoldenModelTest, GreedyAndTeacherForcing) {
    const auto golden = spec["greedy_64"].get<std::vector<uint32_t>>();
    const auto margins = spec["greedy_64_margins"].get<std::vector<double>>();
    const std::string name = GetParam();
    const bool exact = name == "stories260K-f32" || name == "stories260K-f16" ||
                       name == "stories260K-bf16" || name == "stories260K-q4_0";
    auto runner = Runner::open(path + ".gguf");
    ASSERT_TRUE(runner);
    const double expected_error = limit_for(name) * spec["logits_rms"].get<double>();
    std::span<const uint32_t> next = prompt;
    int compared = 0;
    for (size_t i = 0; i < golden.size(); ++i) {
        const uint32_t best = argmax(runner->run(next));
        if (exact || margins[i] > 4 * expected_error) {
            ASSERT_EQ(best, golden[i]) << "step " << i << ", margin " << margins[i];
            ++compared;
        }
        next = {&golden[i], 1};
    }
    std::printf("%s: %d of %zu greedy ids compared\n", name.c_str(), compared, golden.size());
}

}  // namespace
}  // namespace picolm
