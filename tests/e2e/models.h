// The models and prompts of the end-to-end tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "model/random_model.h"
#include "support.h"

namespace picolm::testing {

inline RandomModelSpec tiny_spec() {
    RandomModelSpec spec;
    spec.type = "Q8_0";
    spec.n_embd = 64;
    spec.n_head = 4;
    spec.n_head_kv = 2;
    spec.n_ff = 128;
    return spec;
}

inline std::string make_model(const RandomModelSpec& spec, const std::string& name) {
    static const TempDir folder;
    const std::string path = folder.file(name);
    if (std::filesystem::exists(path)) return path;
    const Status written = write_random_model(spec, path);
    EXPECT_TRUE(written) << written.error().text;
    return path;
}

// Context 256.
inline std::string tiny_model() {
    return make_model(tiny_spec(), "tiny.gguf");
}
// A context that no test fills, so that the answer goes on until somebody stops it.
inline std::string endless_model() {
    RandomModelSpec spec = tiny_spec();
    spec.n_ctx = 1 << 17;
    return make_model(spec, "endless.gguf");
}

inline const std::string kPrompt =
    "You are a patient helper. Answer in one short sentence, and say so when you do not know. "
    "The time is 10:15 and the light in the kitchen is on. What should I do with it now?";

}  // namespace picolm::testing
