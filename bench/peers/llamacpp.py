#!/usr/bin/env python3
"""PicoLM beside llama.cpp (and ik_llama.cpp) on the same GGUF file, in turns A B A B.

    mkdir peers && npm install --prefix peers node-llama-cpp@3.22.1
    bench/peers/llamacpp.py --peers peers --model MODEL.gguf [--picolm build/release/picolm]

llama.cpp is the prebuilt library that the npm package node-llama-cpp brings. It is called through its
C interface, as its own llama-bench does: a batch of n tokens, or one token after the other behind a
context that is already filled; a thread pool of its own; the CPU variant that its loader picks, or
one that --backend names (for example haswell: AVX2 without AMX and VNNI). The structures
below are those of the one release named in ABI; another one is refused. --configs chooses among
flash attention off and on (fa0, fa1) and weights repacked at load or not (rp0, rp1); AMX belongs to
rp1. The best of them is what ours is compared with.

--ik DIR adds a third program: a build folder of ik_llama.cpp that holds bin/llama-bench, run in its
default layout with flash attention (its own default).

Every turn is a fresh process; its peak memory is taken at the end (llama.cpp's holds a
Python of about 10 MB). Two small helper processes count in a loop before and after each test: a test is
"busy" when they were slower than 85 % of their best. A long decode of ours, of which PicoLM takes the
context's last tokens, is asked of the others at the same place. Medians are those of the quiet runs where both
programs have some, else of all, and then marked so. Not a test: a noisy machine gives noisy figures.
"""
import argparse
import csv
import ctypes
import glob
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ABI = "v0.5.0"
QUIET = 0.85
PROBE = """
import sys, time
for _ in sys.stdin:
    n = 0
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        for _ in range(200): pass
        n += 1
    print(n, flush=True)
"""


class Probe:
    """How fast all cores that we may use are now; comparable within one run of this script."""

    def __init__(self, n):
        self.children = [subprocess.Popen([sys.executable, "-c", PROBE], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, text=True) for _ in range(n)]
        self.speed()

    def speed(self):
        for child in self.children:
            child.stdin.write("\n")
            child.stdin.flush()
        return min(int(child.stdout.readline()) for child in self.children)

    def close(self):
        for child in self.children:
            child.stdin.close()
            child.wait()


# ---- llama.cpp, in a process of its own

VOID, I32, U32, F32, BOOL = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_float,
                             ctypes.c_bool)


class ModelParams(ctypes.Structure):
    _fields_ = [("devices", VOID), ("overrides", VOID), ("n_gpu_layers", I32), ("split_mode", I32),
                ("load_mode", I32), ("lazy_mode", I32), ("main_gpu", I32), ("tensor_split", VOID),
                ("progress", VOID), ("progress_data", VOID), ("kv_overrides", VOID),
                ("vocab_only", BOOL), ("check_tensors", BOOL), ("use_extra_bufts", BOOL),
                ("no_host", BOOL), ("no_alloc", BOOL), ("load_mtp", BOOL)]


class ContextParams(ctypes.Structure):
    _fields_ = [("n_ctx", U32), ("n_batch", U32), ("n_ubatch", U32), ("n_seq_max", U32),
                ("n_rs_seq", U32), ("n_outputs_max", U32), ("n_outputs_max_per_seq", U32),
                ("n_threads", I32), ("n_threads_batch", I32), ("ctx_type", I32),
                ("rope_scaling", I32), ("pooling", I32), ("attention", I32), ("flash_attn", I32),
                ("rope_base", F32), ("rope_scale", F32), ("yarn", F32 * 4), ("yarn_orig_ctx", U32),
                ("defrag", F32), ("cb_eval", VOID), ("cb_eval_data", VOID), ("type_k", I32),
                ("type_v", I32), ("abort", VOID), ("abort_data", VOID), ("embeddings", BOOL),
                ("offload_kqv", BOOL), ("no_perf", BOOL), ("op_offload", BOOL), ("swa_full", BOOL),
                ("kv_unified", BOOL), ("samplers", VOID), ("n_samplers", ctypes.c_size_t),
                ("ctx_other", VOID)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", I32), ("token", VOID), ("embd", VOID), ("pos", VOID),
                ("n_seq_id", VOID), ("seq_id", VOID), ("logits", VOID)]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def library_folder(peers):
    arch = {"x86_64": "x64", "aarch64": "arm64", "armv7l": "armv7l"}.get(os.uname().machine, "?")
    found = glob.glob(f"{peers}/node_modules/@node-llama-cpp/linux-{arch}/bins/*/libllama.*so")
    if not found:
        sys.exit(f"no library of node-llama-cpp for linux-{arch} below {peers}; "
                 f"npm install --prefix {peers} node-llama-cpp@3.22.1")
    folder = os.path.dirname(found[0])
    with open(f"{folder}/_nlcBuildMetadata.json", encoding="utf-8") as file:
        release = json.load(file)["buildOptions"]["llamaCpp"]["release"]
    if release != ABI:
        sys.exit(f"{folder} holds llama.cpp {release}; this script knows {ABI}")
    return folder


class LlamaCpp:
    def __init__(self, folder, backend, model, n_ctx, config, max_threads):
        base = ctypes.CDLL(f"{folder}/libggml-base.so", mode=ctypes.RTLD_GLOBAL)
        ggml = ctypes.CDLL(f"{folder}/libggml.{ABI}.so", mode=ctypes.RTLD_GLOBAL)
        self.lib = lib = ctypes.CDLL(f"{folder}/libllama.{ABI}.so", mode=ctypes.RTLD_GLOBAL)
        self.lines = []
        self.log = LOG(lambda _level, text, _data: self.lines.append(text.decode(errors="replace")))
        lib.llama_log_set(self.log, None)
        if backend:
            ggml.ggml_backend_load.restype = VOID
            path = f"{folder}/libggml-cpu-{backend}.so".encode()
            if not ggml.ggml_backend_load(path):
                sys.exit(f"cannot load {path.decode()}")
        else:
            ggml.ggml_backend_load_all_from_path(folder.encode())
        lib.llama_backend_init()
        self.declare(lib)

        params = lib.llama_model_default_params()
        if (params.n_gpu_layers, params.use_extra_bufts, params.vocab_only) != (-1, True, False):
            sys.exit("the parameters of this library are not laid out as expected")
        params.use_extra_bufts = config.endswith("rp1")
        self.model = lib.llama_model_load_from_file(model.encode(), params)
        if not self.model:
            sys.exit("llama.cpp cannot load the model:\n" + "".join(self.lines[-20:]))
        params = lib.llama_context_default_params()
        if (params.n_ctx, params.n_batch, params.type_k, params.offload_kqv) != (512, 2048, 1, True):
            sys.exit("the parameters of this library are not laid out as expected")
        params.n_ctx = n_ctx
        params.flash_attn = int(config.startswith("fa1"))
        params.no_perf = True
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit("llama.cpp cannot make a context:\n" + "".join(self.lines[-20:]))
        self.memory = lib.llama_get_memory(self.context)
        self.n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.make_pools(base, ggml, max_threads)

    @staticmethod
    def declare(lib):
        for name, result, arguments in (
                ("llama_model_default_params", ModelParams, []),
                ("llama_context_default_params", ContextParams, []),
                ("llama_model_load_from_file", VOID, [ctypes.c_char_p, ModelParams]),
                ("llama_init_from_model", VOID, [VOID, ContextParams]),
                ("llama_get_memory", VOID, [VOID]),
                ("llama_memory_seq_rm", BOOL, [VOID, I32, I32, I32]),
                ("llama_memory_clear", None, [VOID, BOOL]),
                ("llama_model_get_vocab", VOID, [VOID]),
                ("llama_vocab_n_tokens", I32, [VOID]),
                ("llama_model_n_ctx_train", I32, [VOID]),
                ("llama_set_n_threads", None, [VOID, I32, I32]),
                ("llama_attach_threadpool", None, [VOID, VOID, VOID]),
                ("llama_synchronize", None, [VOID]),
                ("llama_decode", I32, [VOID, Batch])):
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments

    def make_pools(self, base, ggml, max_threads):
        """One thread pool for each number of threads, as llama-bench has; else every token would
        start threads."""
        ggml.ggml_backend_reg_by_name.restype = VOID
        base.ggml_backend_reg_get_proc_address.restype = VOID
        base.ggml_backend_reg_get_proc_address.argtypes = [VOID, ctypes.c_char_p]
        cpu = ggml.ggml_backend_reg_by_name(b"CPU")
        address = base.ggml_backend_reg_get_proc_address(cpu, b"ggml_threadpool_new")
        new_pool = ctypes.CFUNCTYPE(VOID, VOID)(address)
        self.pools = {}
        for n in range(1, max_threads + 1):
            params = ctypes.create_string_buffer(4096)
            base.ggml_threadpool_params_init(params, n)
            self.pools[n] = new_pool(ctypes.addressof(params))

    def use_threads(self, n):
        self.lib.llama_attach_threadpool(self.context, self.pools[n], self.pools[n])
        self.lib.llama_set_n_threads(self.context, n, n)

    def truncate(self, n):
        if n == 0:
            self.lib.llama_memory_clear(self.memory, True)
        elif not self.lib.llama_memory_seq_rm(self.memory, 0, n, -1):
            sys.exit("llama.cpp cannot shorten the context")

    def decode(self, first, n):
        """One pass over n tokens (their ids depend on the position only); seconds."""
        ids = (I32 * n)(*((first + i) * 7919 % self.n_vocab for i in range(n)))
        batch = Batch(n, ctypes.addressof(ids))
        start = time.perf_counter()
        if self.lib.llama_decode(self.context, batch) != 0:
            sys.exit("llama_decode failed:\n" + "".join(self.lines[-20:]))
        self.lib.llama_synchronize(self.context)
        return time.perf_counter() - start


def loaded_backend():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        names = {line.split("/")[-1].strip() for line in maps if "libggml-cpu" in line}
    return ",".join(sorted(names)).replace("libggml-cpu-", "").replace(".so", "")


def process_memory():
    with open("/proc/self/status", encoding="utf-8") as status:
        fields = dict(line.split(":", 1) for line in status)
    return [int(fields[key].split()[0]) * 1024 for key in ("VmHWM", "RssAnon")]


def worker(a):
    """All tests with one configuration; prints one JSON object."""
    threads, prefill, decode = (numbers(x) for x in (a.threads, a.prefill, a.decode))
    n_ctx = max([n for n in prefill] + [n + a.tokens for n in decode] + [64])
    probe = Probe(len(os.sched_getaffinity(0)))
    llama = LlamaCpp(library_folder(a.peers), a.backend, a.model, (n_ctx + 255) // 256 * 256,
                     a.worker, max(threads))
    rows = []

    def measure(test, n, n_threads, run):
        before = probe.speed()
        llama.use_threads(n_threads)
        rate = run()
        rows.append([test, n, n_threads, rate, min(before, probe.speed())])

    # Pages, scratch memory, threads: no test pays for what only the first pass needs.
    for n_threads in sorted(threads):
        llama.use_threads(n_threads)
        llama.truncate(0)
        llama.decode(0, 16)
        llama.decode(16, 1)
    llama.truncate(0)
    llama.decode(0, min(512, max(prefill + decode + [1])))
    for n_threads in threads:
        for n in prefill:
            llama.truncate(0)
            measure("prefill", n, n_threads, lambda n=n: n / sum(
                llama.decode(i, min(512, n - i)) for i in range(0, n, 512)))
    llama.truncate(0)
    filled = 0
    for n in sorted(decode):
        llama.use_threads(max(threads))
        while filled < n:
            llama.decode(filled, min(512, n - filled))
            filled = min(filled + 512, n)
        for n_threads in threads:
            llama.truncate(n)
            measure("decode", n, n_threads, lambda n=n: a.tokens / sum(
                llama.decode(n + i, 1) for i in range(a.tokens)))
        llama.truncate(n)
    probe.close()
    print(json.dumps({"rows": rows, "memory": process_memory(), "backend": loaded_backend()}))


# ---- the turns

def numbers(text):
    return [] if text == "none" else [int(part) for part in text.split(",")]


def checked(command):
    """What the command prints, and the most memory that it had resident."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as child:
            text = child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        if child.returncode != 0:
            sys.exit(f"{' '.join(command)} failed ({child.returncode}):\n{log.read()[-3000:]}")
    return text, usage.ru_maxrss * 1024


def ours(a, probe):
    command = [a.picolm, "bench", a.model, "--format", "json", "-t", a.threads, "--prefill",
               a.prefill, "--decode", a.decode, "--warm", "0", "-r", "1", "-n", str(a.tokens),
               "--seconds", "0"]
    before = probe.speed()
    report = json.loads(checked(command)[0])
    limit = QUIET * report["machine"]["best_core_speed"]
    speed = min(before, probe.speed())
    rows = [[row["test"], row["n_tokens"], row["threads"], row["median"],
             speed if row["core_speed"] >= limit else 0] for row in report["rows"]]
    # What the model's context allows is what the others are asked for too.
    for test in ("prefill", "decode"):
        lengths = sorted({row["n_tokens"] for row in report["rows"] if row["test"] == test})
        setattr(a, test, ",".join(map(str, lengths)) or "none")
    memory = report["memory"]
    return {"rows": rows, "memory": [memory["peak_resident"], memory["peak_anonymous"]],
            "backend": report["machine"]["isa"]}


def theirs(a, config):
    command = [sys.executable, os.path.abspath(__file__), "--worker", config]
    for name in ("peers", "backend", "model", "threads", "prefill", "decode", "tokens"):
        if getattr(a, name):
            command += [f"--{name}", str(getattr(a, name))]
    return json.loads(checked(command)[0])


def ik(a, probe):
    found = [p for p in (f"{a.ik}/bin/llama-bench", f"{a.ik}/llama-bench") if os.path.exists(p)]
    if not found:
        sys.exit(f"no llama-bench in {a.ik}")
    command = [found[0], "-m", a.model, "-o", "csv", "-r", "1", "-t", a.threads]
    command += ["-p", a.prefill.replace("none", "0")]
    decode = numbers(a.decode)
    command += ["-n", str(a.tokens if 0 in decode else 0)]
    for n in decode:
        if n > 0:
            command += ["-gp", f"{n},{a.tokens}"]
    before = probe.speed()
    text, resident = checked(command)
    speed = min(before, probe.speed())
    rows = []
    for row in csv.DictReader(io.StringIO(text)):
        is_decode = int(row["n_gen"]) > 0
        rows.append(["decode" if is_decode else "prefill", int(row["n_prompt"]),
                     int(row["n_threads"]), float(row["avg_ts"]), speed])
    return {"rows": rows, "memory": [resident, None], "backend": "default layout"}


class Figures:
    """All samples of all turns: (test, n, threads) -> program -> [(rate, core speed)]."""

    def __init__(self):
        self.samples, self.memory, self.backends = {}, {}, {}

    def add(self, program, turn):
        self.backends[program] = turn["backend"]
        self.memory.setdefault(program, []).append(turn["memory"])
        for test, n, threads, rate, speed in turn["rows"]:
            key = (test, n, threads)
            self.samples.setdefault(key, {}).setdefault(program, []).append((rate, speed))
            if test != "read":
                print(f"  {program:14} {test:8} {n:5} x{threads} {rate:10.2f} tok/s", flush=True)

    def print_table(self, programs):
        best = max(speed for row in self.samples.values() for samples in row.values()
                   for _, speed in samples)
        rivals = [p for p in programs if p != "picolm" and p != "ik"]
        others = [p for p in programs if p != "picolm"]
        print("\n" + f"{'test':14} {'threads':>7}" + "".join(f"{p:>11}" for p in programs) +
              f"{'ratio':>8}  state")
        for (test, n, threads), row in self.samples.items():
            quiet = {p: [r for r, s in row.get(p, []) if s >= QUIET * best] for p in programs}
            is_quiet = all(quiet[p] for p in programs if row.get(p))
            medians = {p: statistics.median(quiet[p] if is_quiet else [r for r, _ in row[p]])
                       for p in programs if row.get(p)}
            line = f"{test + ' ' + str(n):14} {threads:7}"
            line += "".join(f"{medians[p]:11.2f}" if p in medians else f"{'-':>11}"
                            for p in programs)
            known = [medians[p] for p in rivals if p in medians]
            ratio = f"{medians['picolm'] / max(known):8.2f}" if known else f"{'-':>8}"
            print(line + ratio + f"  {'quiet' if is_quiet else 'busy'}"
                  f" ({'/'.join(str(len(quiet[p])) for p in programs)})")
        print("ratio: picolm against the best of", ", ".join(rivals) or "none")
        print("state: quiet runs of", " / ".join(["picolm"] + others), "that the medians are of")
        for program, values in self.memory.items():
            resident = max(v[0] for v in values) / 1e6
            line = f"memory {program:10} peak {resident:8.1f} MB resident"
            if values[0][1] is not None:
                line += f", {max(v[1] for v in values) / 1e6:8.1f} MB anonymous"
            print(line + f"; kernels: {self.backends[program]}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", required=True, help="folder with node_modules/node-llama-cpp")
    parser.add_argument("--model", required=True)
    parser.add_argument("--picolm", default="./picolm")
    parser.add_argument("--ik", help="build folder of ik_llama.cpp")
    parser.add_argument("--configs", default="fa0rp0,fa0rp1,fa1rp0,fa1rp1")
    parser.add_argument("--backend", help="CPU variant of llama.cpp, for example haswell")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--prefill", default="128,512")
    parser.add_argument("--decode", default="0,512,2048")
    parser.add_argument("--tokens", type=int, default=32, help="of one decode")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        return worker(a)
    library_folder(a.peers)
    probe = Probe(len(os.sched_getaffinity(0)))
    configs = [] if a.configs == "none" else a.configs.split(",")
    figures = Figures()
    for number in range(a.rounds):
        print(f"round {number + 1} of {a.rounds}", flush=True)
        for i, config in enumerate(configs):
            if i % 2 == 0:
                figures.add("picolm", ours(a, probe))
            figures.add(config, theirs(a, config))
        if a.ik or not configs:
            figures.add("picolm", ours(a, probe))
        if a.ik:
            figures.add("ik", ik(a, probe))
    probe.close()
    figures.print_table(["picolm"] + configs + (["ik"] if a.ik else []))
    return None


if __name__ == "__main__":
    main()
