// make_model OUT.gguf: the command line of model/random_model.h.
#include <CLI/CLI.hpp>

#include <cstdio>

#include "model/random_model.h"

namespace {

using picolm::RandomModelSpec;

// An option overrides its preset, whichever comes first: presets are applied before parsing.
void add_options(CLI::App& app, RandomModelSpec& spec) {
    app.add_option("--arch", spec.arch, "prefix of the hyperparameter keys")->capture_default_str();
    app.add_option("--name", spec.name, "general.name")->capture_default_str();
    app.add_option("--type", spec.type,
                   "Q2_K, Q3_K_S/M/L, Q4_K_S/M, Q5_K_S/M, Q6_K, IQ4_NL, IQ4_XS (mixes as "
                   "llama.cpp's), any other tensor type, or pure:TYPE")
        ->capture_default_str();
    app.add_option("--n-embd", spec.n_embd)->capture_default_str();
    app.add_option("--n-layer", spec.n_layer)->capture_default_str();
    app.add_option("--n-head", spec.n_head)->capture_default_str();
    app.add_option("--n-head-kv", spec.n_head_kv)->capture_default_str();
    app.add_option("--n-ff", spec.n_ff)->capture_default_str();
    app.add_option("--n-vocab", spec.n_vocab)->capture_default_str();
    app.add_option("--n-ctx", spec.n_ctx)->capture_default_str();
    app.add_option("--head-dim", spec.head_dim, "key and value length; 0: n_embd / n_head");
    app.add_option("--rope-dim", spec.rope_dim, "0: the head's");
    app.add_option("--rope-base", spec.rope_base)->capture_default_str();
    app.add_option("--rope-scale", spec.rope_scale, "linear scaling factor")->capture_default_str();
    app.add_option("--rms-eps", spec.rms_eps)->capture_default_str();
    app.add_flag("--rope-freqs", spec.rope_freqs, "add rope_freqs.weight");
    app.add_flag("--bias", spec.attn_bias, "add biases to the attention matrices");
    app.add_flag("--ffn-bias", spec.ffn_bias, "add biases to the feed-forward matrices");
    app.add_flag("--tied,!--untied", spec.tied, "leave out output.weight");
    app.add_option("--seed", spec.seed)->capture_default_str();
}

// The value of --preset, looked for ahead of everything else.
std::string preset_of(int argc, char** argv) {
    CLI::App app;
    app.allow_extras();
    app.set_help_flag();
    std::string preset = "tiny";
    app.add_option("--preset", preset);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError&) {
        return "tiny";  // the real parser finds the same fault and reports it
    }
    return preset;
}

}  // namespace

int main(int argc, char** argv) {
    std::string preset = preset_of(argc, argv);
    const std::optional<RandomModelSpec> found = picolm::random_model_preset(preset);
    if (!found) {
        std::fprintf(stderr, "make_model: no preset \"%s\"; there are %s\n", preset.c_str(),
                     picolm::kRandomModelPresets.data());
        return 2;
    }
    RandomModelSpec spec = *found;
    std::string path;
    CLI::App app("Makes a GGUF model with random weights, the same for the same options.");
    app.add_option("OUT.gguf", path, "file to write")->required();
    app.add_option("--preset", preset, std::string(picolm::kRandomModelPresets));
    add_options(app, spec);
    CLI11_PARSE(app, argc, argv);
    const picolm::Status status = picolm::write_random_model(spec, path);
    if (!status) {
        std::fprintf(stderr, "make_model: %s\n", status.error().text.c_str());
        return 1;
    }
    return 0;
}
