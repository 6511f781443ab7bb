#include "app/options.h"

#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cfloat>
#include <cstdlib>
#include <string_view>

#include "app/exit_code.h"
#include "app/values.h"
#include "base/format.h"
#include "model/spec.h"

namespace picolm::app {

const char* const kShortUsage =
    "Usage: picolm MODEL.gguf [options]          answer a prompt\n"
    "       picolm inspect MODEL.gguf            show what a model file holds\n"
    "       picolm bench MODEL.gguf              measure how fast it is here\n"
    "       picolm perplexity MODEL.gguf -f TEXT measure how well it predicts a text\n"
    "       picolm cache ls PLACE                what a prompt cache holds, and more\n"
    "       picolm --help                        all options\n"
    "\n"
    "  -p TEXT        the prompt (or -f FILE, or standard input)\n"
    "  -n N           tokens to generate, at most (256)\n"
    "  -t NUMBER      temperature (0.8; 0: always the likeliest token)\n"
    "  --cache FILE   keep the state of the prompt: it is never computed twice\n";

namespace {

constexpr uint64_t kMaxInt = 2147483647;
constexpr double kMaxPenalty = 1e6;

// "-n,--n-predict" -> "-n/--n-predict".
std::string shown_name(std::string names) {
    std::replace(names.begin(), names.end(), ',', '/');
    return names;
}

[[noreturn]] void refuse(const std::string& names, const std::string& allowed,
                         const std::string& text) {
    throw CLI::ValidationError(shown_name(names),
                               "must be " + allowed + ", not \"" + printable(text) + '"');
}

// An option with one value, handed on as it was typed. Of several the last one counts.
template <typename Take>
CLI::Option* add_value(CLI::App& app, const std::string& names, const char* type,
                       const std::string& help, Take take) {
    return app.add_option_function<std::string>(names, take, help)
        ->type_name(type)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

template <typename T>
CLI::Option* add_integer(CLI::App& app, const std::string& names, T& target, uint64_t low,
                         uint64_t high, const std::string& help) {
    return add_value(app, names, "N", help, [&target, names, low, high](const std::string& text) {
        const std::optional<uint64_t> value = parse_unsigned(text);
        if (!value || *value < low || *value > high)
            refuse(names,
                   format("a whole number from %llu to %llu", static_cast<unsigned long long>(low),
                          static_cast<unsigned long long>(high)),
                   text);
        target = static_cast<T>(*value);
    });
}

CLI::Option* add_real(CLI::App& app, const std::string& names, double& target, double low,
                      double high, const std::string& help) {
    return add_value(app, names, "NUMBER", help,
                     [&target, names, low, high](const std::string& text) {
                         const std::optional<double> value = parse_real(text);
                         if (!value || *value < low || *value > high)
                             refuse(names,
                                    high == DBL_MAX ? format("a finite number from %g up", low)
                                                    : format("a number from %g to %g", low, high),
                                    text);
                         target = *value;
                     });
}

CLI::Option* add_kv_type(CLI::App& app, KvTypes& target) {
    return add_value(app, "--kv-type", "TYPE",
                     "what keys and values are rounded to: f16 (the default), q8_0 (about half of "
                     "the memory) or q4_0 (about a quarter); two with a comma: keys, then values",
                     [&target](const std::string& text) {
                         const std::optional<KvTypes> types = parse_kv_types(text);
                         if (!types)
                             refuse("--kv-type",
                                    "one of " + known_kv_types() +
                                        ", or two of them with a comma between (keys,values)",
                                    text);
                         target = *types;
                     });
}

void add_seed(CLI::App& app, RunOptions& o) {
    const std::string names = "-s,--seed";
    add_value(
        app, names, "N", "seed of the random numbers (42), or \"random\": one that is printed",
        [&o, names](const std::string& text) {
            o.random_seed = text == "random";
            if (o.random_seed) return;
            const std::optional<uint64_t> value = parse_unsigned(text);
            if (!value)
                refuse(names, "a whole number from 0 to 18446744073709551615, or \"random\"", text);
            o.sampler.seed = *value;
        })
        ->group("Sampling");
}

void add_prompt_options(CLI::App& app, RunOptions& o) {
    add_value(app, "-p,--prompt", "TEXT", "the prompt, as it is", [&o](const std::string& text) {
        o.prompt = text;
    })->group("Prompt");
    add_value(app, "-f,--file", "FILE",
              "read the prompt from a file; -: from standard input, which is also read when "
              "neither is given and it is not a terminal",
              [&o](const std::string& text) { o.prompt_file = text; })
        ->group("Prompt");
    app.add_flag("--no-bos", o.no_bos,
                 "put no beginning-of-text token in front, whatever the "
                 "model says")
        ->group("Prompt");
}

// Those of every command that computes something.
void add_engine_options(CLI::App& app, ModelOptions& o, const std::string& group) {
    add_integer(app, "-j,--threads", o.n_threads, 0, 65535,
                "threads (0: one for each fast core); more than this process has CPUs are cut "
                "down to those")
        ->group(group);
    add_integer(app, "--chunk", o.max_chunk, 1, 4096,
                "prompt tokens that are computed together (128); never changes the answer")
        ->group(group);
    add_kv_type(app, o.kv_types)->group(group);
}

// Of --verbose and --quiet.
struct Talk {
    bool verbose = false, quiet = false;
};

void add_talk_options(CLI::App& app, Talk& talk) {
    app.add_flag("--verbose", talk.verbose, "say more on standard error");
    app.add_flag("--quiet", talk.quiet, "say nothing on standard error but warnings and errors");
}

Result<Verbosity> verbosity_of(const Talk& talk) {
    if (talk.verbose && talk.quiet)
        return Error{ErrorKind::invalid, "--verbose and --quiet: only one of them can be given"};
    if (talk.verbose) return Verbosity::verbose;
    return talk.quiet ? Verbosity::quiet : Verbosity::normal;
}

void add_generation_options(CLI::App& app, RunOptions& o) {
    const std::string group = "Generation";
    add_integer(app, "-n,--n-predict", o.n_predict, 0, kMaxInt,
                "tokens to generate, at most (256); ends with the context in any case; 0: only "
                "evaluate the prompt, and cache it")
        ->group(group);
    add_integer(app, "-c,--ctx", o.n_ctx, 0, kMaxContext,
                "length of the context, prompt and answer together (0: the model's, which is also "
                "the limit)")
        ->group(group);
    add_value(app, "--stop", "TEXT", "end the answer in front of this text (may be repeated)",
              [](const std::string&) {})
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(group);
    add_engine_options(app, o, group);
}

void add_sampling_options(CLI::App& app, RunOptions& o, bool& json) {
    const std::string group = "Sampling";
    SamplerOptions& s = o.sampler;
    add_real(app, "-t,--temp", s.temperature, 0, DBL_MAX,
             "temperature (0.8); 0: always the likeliest token")
        ->group(group);
    add_real(app, "-k,--top-p", s.top_p, 0, 1,
             "keep the likeliest tokens whose share is this much (0.9); 1: all")
        ->group(group);
    add_integer(app, "--top-k", s.top_k, 0, kMaxInt, "keep the N likeliest tokens (0: all)")
        ->group(group);
    add_real(app, "--min-p", s.min_p, 0, 1,
             "keep tokens at least this much as likely as the best (0: all)")
        ->group(group);
    add_seed(app, o);
    add_real(app, "--repeat-penalty", s.repeat_penalty, 1 / kMaxPenalty, kMaxPenalty,
             "make tokens that were there less likely (1: off)")
        ->group(group);
    add_real(app, "--presence-penalty", s.presence_penalty, -kMaxPenalty, kMaxPenalty,
             "the same, by a fixed amount (0: off)")
        ->group(group);
    add_real(app, "--frequency-penalty", s.frequency_penalty, -kMaxPenalty, kMaxPenalty,
             "the same, for each time they were there (0: off)")
        ->group(group);
    add_integer(app, "--penalty-window", s.penalty_window, 0, kMaxInt,
                "how many of the last tokens the penalties look at (64)")
        ->group(group);
    app.add_flag("--json", json, "answer in JSON: not built yet")->group(group);
}

// An option that names a file or folder.
CLI::Option* add_path(CLI::App& app, const std::string& names, const char* type,
                      std::string& target, const std::string& help) {
    return add_value(app, names, type, help, [&target, names, type](const std::string& text) {
        if (text.empty())
            throw CLI::ValidationError(names, std::string("needs the name of a ") + type);
        target = text;
    });
}

CLI::Option* add_size(CLI::App& app, const std::string& names, std::optional<uint64_t>& target,
                      const std::string& help) {
    return add_value(app, names, "SIZE", help, [&target, names](const std::string& text) {
        target = parse_size(text);
        if (!target) refuse(names, "a size such as 500K, 64M or 2G", text);
    });
}

void add_cache_options(CLI::App& app, RunOptions& o) {
    const std::string group = "Prompt cache";
    add_path(app, "--cache", "FILE", o.cache.file,
             "keep the state of prompts in this file, and use what it shares with this prompt; or "
             "in a Redis or Valkey server: redis://[user:password@]host[:port][/db]"
             "[?prefix=P&ttl=SECONDS&timeout=MS]; the password may also be in the variable "
             "PICOLM_REDIS_PASSWORD")
        ->group(group);
    add_path(app, "--cache-dir", "FOLDER", o.cache.folder,
             "the same in a folder that any number of prompts, models and processes share; with "
             "--cache redis://... it stands in front of the server")
        ->group(group);
    add_size(app, "--cache-limit", o.cache.limit,
             "largest size of the cache: bytes, or with K, M or G (64M for a file; for a folder "
             "the smaller of 1G and a tenth of the free space). A file keeps what was saved last, "
             "a folder what was used last")
        ->group(group);
    app.add_flag("--cache-ro", o.cache.read_only, "use the cache, but write nothing to it")
        ->group(group);
    app.add_flag("--cache-strict", o.cache.strict,
                 "tell models apart by all their bytes, not by samples (reads the whole file)")
        ->group(group);
}

void add_model(CLI::App& app, std::string& model) {
    app.add_option("MODEL.gguf", model, "the model file")->required()->type_name("");
}

std::string variable_of(const std::string& long_name) {
    std::string name = "PICOLM_" + long_name;
    for (char& c : name)
        c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return name;
}

// Options that stand for the same thing: one on the command line silences both variables.
bool given(const CLI::App& app, const std::string& long_name) {
    static constexpr const char* kRivals[][2] = {
        {"prompt", "file"}, {"verbose", "quiet"}, {"cache", "cache-dir"}, {"save-logits", "kl"}};
    // A command need not have both.
    const auto is_given = [&](const std::string& name) {
        const CLI::Option* option = app.get_option_no_throw("--" + name);
        return option != nullptr && option->count() > 0;
    };
    if (is_given(long_name)) return true;
    for (const auto& [a, b] : kRivals) {
        if (long_name == a) return is_given(b);
        if (long_name == b) return is_given(a);
    }
    return false;
}

// CLI11 can do this too, but not say which variable is wrong.
void apply_environment(CLI::App& app) {
    for (CLI::Option* option : app.get_options()) {
        if (option->get_lnames().empty()) continue;
        const std::string& name = option->get_lnames().front();
        if (name == "help" || name == "version" || given(app, name)) continue;
        const std::string variable = variable_of(name);
        const char* value = std::getenv(variable.c_str());
        if (value == nullptr || *value == '\0') continue;
        try {
            option->add_result(value);
            option->run_callback();
        } catch (const CLI::ParseError& e) {
            throw CLI::ValidationError("in the environment, " + variable, e.what());
        }
    }
}

constexpr const char* kEnvironmentHelp =
    "Every option --long-name can be set as PICOLM_LONG_NAME in the environment; the\n"
    "command line wins. PICOLM_ISA names the instruction-set level to use.\n\n";

std::string footer() {
    return std::string(
               "Commands: picolm run MODEL.gguf [options] is the same as without \"run\";\n"
               "picolm inspect MODEL.gguf shows what a model file holds; picolm bench MODEL.gguf\n"
               "measures how fast it is on this machine; picolm perplexity MODEL.gguf -f TEXT how\n"
               "well it predicts a text; picolm cache looks after prompt caches. Each of them has\n"
               "a --help of its own. A file with the name of a command in the current folder is\n"
               "taken for the model.\n\n") +
           kEnvironmentHelp +
           "The answer goes to standard output as it is, followed by one line feed (nothing\n"
           "at all for -n 0); everything else goes to standard error. A text that spells a\n"
           "control token, such as </s>, is that token.\n\n"
           "Ctrl-C ends the answer, prints the statistics and waits until the prompt is\n"
           "saved; a second one ends the program at once.\n\n" +
           kExitCodeHelp;
}

std::string version_text() {
    return std::string("picolm ") + PICOLM_VERSION + '\n';
}

// Parses what stands behind the command; the text of --help or --version, if that was asked for.
std::optional<ShowText> parse(CLI::App& app, int argc, const char* const* argv, int skip,
                              const std::string& below = footer(), bool environment = true) {
    std::vector<std::string> args(argv + 1 + skip, argv + argc);
    std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
    app.footer(below);
    app.set_version_flag("--version", version_text());
    try {
        app.parse(args);
    } catch (const CLI::CallForHelp&) {
        return ShowText{app.help()};
    } catch (const CLI::CallForVersion&) {
        return ShowText{version_text()};
    }
    if (environment) apply_environment(app);
    return std::nullopt;
}

Result<Command> parse_run(int argc, const char* const* argv, int skip) {
    RunOptions o;
    CLI::App app("Answers a prompt with a language model, and never computes a prompt twice.",
                 "picolm");
    add_model(app, o.model);
    add_prompt_options(app, o);
    add_generation_options(app, o);
    bool json = false;
    Talk talk;
    add_sampling_options(app, o, json);
    add_cache_options(app, o);
    add_talk_options(app, talk);
    add_path(app, "--stats-json", "FILE", o.stats_json,
             "write the statistics of the run to this file, as JSON");
    if (std::optional<ShowText> text = parse(app, argc, argv, skip)) return Command(*text);

    if (json)
        return Error{ErrorKind::invalid,
                     "--json is not built yet: answers held to JSON come with a later version"};
    if (o.prompt && o.prompt_file)
        return Error{ErrorKind::invalid,
                     "-p/--prompt and -f/--file: only one of them can be given"};
    TRY(settle(o.cache));
    TRY(o.verbosity, verbosity_of(talk));
    o.stop = app["--stop"]->results();
    if (std::count(o.stop.begin(), o.stop.end(), "") > 0)
        return Error{ErrorKind::invalid, "--stop: needs a text that is not empty"};
    return Command(std::move(o));
}

Result<Command> parse_inspect(int argc, const char* const* argv, int skip) {
    InspectOptions o;
    CLI::App app("Shows what a model file holds, what it needs and whether it can be run here.",
                 "picolm inspect");
    add_model(app, o.model);
    add_integer(app, "-c,--ctx", o.n_ctx, 0, kMaxContext,
                "plan the memory for this many positions (0: the model's context)");
    add_kv_type(app, o.kv_types);
    if (std::optional<ShowText> text = parse(app, argc, argv, skip)) return Command(*text);
    return Command(std::move(o));
}

void add_list(CLI::App& app, const std::string& names, std::vector<uint32_t>& target, uint32_t low,
              uint32_t high, const std::string& help) {
    add_value(app, names, "LIST", help, [&target, names, low, high](const std::string& text) {
        std::optional<std::vector<uint32_t>> values = parse_list(text, low, high);
        if (!values)
            refuse(names,
                   format("whole numbers from %u to %u with commas between them, or \"none\"", low,
                          high),
                   text);
        target = std::move(*values);
    });
}

void add_format(CLI::App& app, BenchFormat& target) {
    add_value(app, "--format", "NAME", "table (for people, the default), csv or json",
              [&target](const std::string& text) {
                  if (text == "table")
                      target = BenchFormat::table;
                  else if (text == "csv")
                      target = BenchFormat::csv;
                  else if (text == "json")
                      target = BenchFormat::json;
                  else
                      refuse("--format", "table, csv or json", text);
              });
}

Result<Command> parse_perplexity(int argc, const char* const* argv, int skip) {
    PerplexityOptions o;
    CLI::App app(
        "Measures how well a model predicts a text: its perplexity, with the standard error.\n\n"
        "The text is cut into windows that do not overlap; what is left at its end is not used. "
        "Where the model wants a beginning-of-text token, it takes the place of the first token "
        "of each window. Only the second half of each window is scored, so that every scored "
        "token has some context. llama.cpp's llama-perplexity does the same: its numbers can be "
        "compared with these. A text that spells a control token, such as </s>, is only text.",
        "picolm perplexity");
    add_model(app, o.model);
    add_value(app, "-f,--file", "TEXT",
              "the text, at least two windows long; -: from standard input, which is also read "
              "without this option when it is not a terminal",
              [&o](const std::string& text) { o.text_file = text; });
    add_integer(app, "-c,--ctx", o.n_ctx, 0, kMaxContext,
                "tokens of a window (0: 512, or the model's context if that is shorter)");
    add_integer(
        app, "--stride", o.stride, 0, kMaxContext,
        "start a window every N tokens and score the last N of each: the others are context "
        "(0: windows do not overlap, and the second half is scored)");
    add_integer(app, "--windows", o.max_windows, 0, kMaxInt, "only the first N windows (0: all)");
    add_path(app, "--save-logits", "FILE", o.save_logits,
             "save what the model says about each scored token, for a later --kl: 2 bytes for "
             "each of them and each token of the vocabulary, which is gigabytes for a long text");
    add_path(app, "--kl", "FILE", o.saved_logits,
             "compare with what another model (or the same, quantised otherwise) said of the "
             "same text, saved by --save-logits: Kullback-Leibler divergence, likeliest token, "
             "ratio of the perplexities; -c and --stride are those of the file");
    add_engine_options(app, o, "Options");
    add_value(app, "--format", "NAME", "table (for people, the default) or json",
              [&o](const std::string& text) {
                  if (text != "table" && text != "json") refuse("--format", "table or json", text);
                  o.format = text == "json" ? PerplexityFormat::json : PerplexityFormat::table;
              });
    Talk talk;
    add_talk_options(app, talk);
    const std::string below =
        std::string(kEnvironmentHelp) +
        "The result goes to standard output, everything else to standard "
        "error. Ctrl-C ends it\nwith what has been scored until then; nothing is "
        "saved.\n\n" +
        kExitCodeHelp;
    if (std::optional<ShowText> text = parse(app, argc, argv, skip, below)) return Command(*text);
    TRY(o.verbosity, verbosity_of(talk));
    if (!o.save_logits.empty() && !o.saved_logits.empty())
        return Error{ErrorKind::invalid, "--save-logits and --kl: only one of them can be given"};
    return Command(std::move(o));
}

Result<Command> parse_bench(int argc, const char* const* argv, int skip) {
    BenchOptions o;
    CLI::App app(
        "Measures how fast a model is on this machine: prefill, decode and a warm start, beside "
        "the rate at which the same threads can read the file at all.",
        "picolm bench");
    add_model(app, o.model);
    add_list(app, "-t,-j,--threads", o.threads, 0, 65535,
             "numbers of threads, every test with each (0: one for each fast core); without this "
             "option every test with that number, and one prefill and one decode with fewer");
    add_list(app, "--prefill", o.prefill, 1, kMaxContext, "prompt lengths (16,64,128,512)");
    add_list(app, "--decode", o.decode, 0, kMaxContext,
             "positions in front of the tokens that are generated (0,512,2048)");
    add_integer(app, "--warm", o.warm, 0, kMaxContext,
                "prompt length of the warm start: opening the model and taking a prompt out of a "
                "cache file (512; 0: leave it out)");
    add_integer(app, "-n,--decode-tokens", o.n_decode, 1, 65536,
                "tokens that are generated in one run of a decode test (32)");
    add_integer(app, "-r,--runs", o.runs, 1, 10000, "runs of each test (5)");
    add_integer(
        app, "--seconds", o.row_seconds, 0, 1000000,
        "time for one test (20): fewer runs are made when the first ones take too long, and "
        "a test whose one run is expected to take three times as long is skipped; 0: no "
        "limit");
    add_integer(app, "--chunk", o.max_chunk, 1, 4096, "prompt tokens computed together (128)");
    add_kv_type(app, o.kv_types);
    add_format(app, o.format);
    if (std::optional<ShowText> text = parse(app, argc, argv, skip)) return Command(*text);
    return Command(std::move(o));
}

constexpr const char* kCacheHelp =
    "Looks after prompt caches, files, folders and servers alike.\n\n"
    "  picolm cache ls PLACE [ID...]              the prompts in it; --text MODEL.gguf shows how\n"
    "                                             they begin, or those of these ids whole\n"
    "  picolm cache stat PLACE                    how much is in it\n"
    "  picolm cache verify PLACE                  reads everything, removes what is damaged\n"
    "  picolm cache rm PLACE ID... | --all        removes prompts\n"
    "  picolm cache trim PLACE SIZE               removes what was used longest ago\n"
    "  picolm cache export PLACE FILE [ID...]     copies prompts into a file, to take elsewhere\n"
    "  picolm cache import PLACE FILE [ID...]     and from there into a cache\n\n"
    "PLACE is a file, a folder or a server (redis://host); what does not exist yet is a file if\n"
    "it ends with \".kvc\". An ID is what ls shows, or as many of its first digits as are\n"
    "unmistakable.";

Result<Command> parse_cache(int argc, const char* const* argv, int skip) {
    using Verb = CacheCommandOptions::Verb;
    static constexpr std::pair<const char*, Verb> kVerbs[] = {{"ls", Verb::ls},
                                                              {"stat", Verb::stat},
                                                              {"verify", Verb::verify},
                                                              {"rm", Verb::rm},
                                                              {"trim", Verb::trim},
                                                              {"export", Verb::export_to},
                                                              {"import", Verb::import_from}};
    CacheCommandOptions o;
    std::string verb;
    std::vector<std::string> rest;
    CLI::App app(kCacheHelp, "picolm cache");
    app.add_option("VERB", verb, "ls, stat, verify, rm, trim, export or import")
        ->required()
        ->type_name("");
    app.add_option("PLACE", o.place, "the cache")->required()->type_name("");
    app.add_option("MORE", rest, "what the verb wants")->type_name("");
    add_path(app, "--text", "MODEL.gguf", o.model,
             "ls: show the text of the prompts, with the vocabulary of this model");
    app.add_flag("--all", o.all, "rm: everything");
    app.add_flag("--keep", o.keep, "verify: remove nothing, and fail if something is damaged");
    app.add_flag("--json", o.json, "ls, stat: for machines");
    if (std::optional<ShowText> text = parse(app, argc, argv, skip, kExitCodeHelp, false))
        return Command(*text);
    const auto found = std::find_if(std::begin(kVerbs), std::end(kVerbs),
                                    [&](const auto& known) { return verb == known.first; });
    if (found == std::end(kVerbs))
        return Error{ErrorKind::invalid, format("\"%s\" is not ls, stat, verify, rm, trim, export "
                                                "or import; picolm cache --help",
                                                printable(verb).c_str())};
    o.verb = found->second;
    const bool copies = o.verb == Verb::export_to || o.verb == Verb::import_from;
    if (copies || o.verb == Verb::trim) {
        if (rest.empty())
            return Error{ErrorKind::invalid, "picolm cache " + verb + ": needs " +
                                                 (copies ? "a file" : "a size such as 64M") +
                                                 " behind the place"};
        if (copies) o.other = rest.front();
        const std::optional<uint64_t> size = copies ? 0 : parse_size(rest.front());
        if (!size) refuse("SIZE", "a size such as 500K, 64M or 2G", rest.front());
        o.size = *size;
        rest.erase(rest.begin());
    }
    const bool takes_ids = copies || o.verb == Verb::ls || o.verb == Verb::rm;
    if (!takes_ids && !rest.empty())
        return Error{ErrorKind::invalid, format("picolm cache %s: \"%s\" is one argument too many",
                                                verb.c_str(), printable(rest.front()).c_str())};
    o.ids = std::move(rest);
    return Command(std::move(o));
}

bool is_file(const char* path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

}  // namespace

Result<Command> parse_command_line(int argc, const char* const* argv) {
    const std::string_view first = argc > 1 && !is_file(argv[1]) ? argv[1] : "";
    try {
        if (first == "inspect") return parse_inspect(argc, argv, 1);
        if (first == "bench") return parse_bench(argc, argv, 1);
        if (first == "cache") return parse_cache(argc, argv, 1);
        if (first == "perplexity") return parse_perplexity(argc, argv, 1);
        return parse_run(argc, argv, first == "run" ? 1 : 0);
    } catch (const CLI::Error& e) {
        return Error{ErrorKind::invalid, e.what()};
    }
}

}  // namespace picolm::app
