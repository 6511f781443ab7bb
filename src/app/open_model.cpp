#include "app/open_model.h"

#include <algorithm>

#include "app/report.h"
#include "app/signals.h"
#include "base/format.h"
#include "base/machine.h"

namespace picolm::app {

Result<std::unique_ptr<Engine>> open_engine(const ModelOptions& options, Console& console,
                                            bool strict_identity) {
    console.info("Loading model: " + options.model);
    EngineOptions engine_options;
    const auto n_cpus = static_cast<uint32_t>(allowed_cpus().size());
    engine_options.n_threads = std::min(options.n_threads, n_cpus);
    if (options.n_threads > n_cpus)
        console.info(format("Note: -j %u is more than the %u CPUs this process may use: %u threads",
                            options.n_threads, n_cpus, n_cpus));
    engine_options.max_chunk = options.max_chunk;
    engine_options.kv_types = options.kv_types;
    engine_options.strict_identity = strict_identity;
    TRY(std::unique_ptr<Engine> engine, Engine::open(options.model, std::move(engine_options)));
    set_model_bytes(
        {engine->file().header_bytes().data(), static_cast<size_t>(engine->file().file_size())});
    console.info(describe_model(*engine));
    return engine;
}

SessionOptions session_options(const ModelOptions& options, const Engine& engine,
                               Console& console) {
    SessionOptions session;
    session.n_ctx = std::min(options.n_ctx, engine.max_context());
    if (options.n_ctx > engine.max_context())
        console.info(format("Note: -c %u is more than the model's context, which is used: %u",
                            options.n_ctx, engine.max_context()));
    return session;
}

void show_plan(const Engine& engine, const MemoryPlan& plan, Console& console) {
    if (!console.verbose()) return;
    std::string levels;
    for (const std::string_view level : usable_levels()) levels.append(" ").append(level);
    console.detail(format("Kernels: %s (usable here:%s)", engine.kernels().name, levels.c_str()));
    console.detail(plan.describe());
}

}  // namespace picolm::app
