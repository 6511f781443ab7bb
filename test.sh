#!/usr/bin/env bash
# test.sh: builds and tests everything. See --help. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")" || exit 1

usage() {
    cat <<'END'
Usage: ./test.sh [--quick] [--cross] [--fuzz] [--tsan]

Without options: static checks, a release build with all tests, the logits hash at every
instruction-set level, then all tests again under AddressSanitizer and UBSan.

  --quick   leave the sanitizers out
  --cross   also build for AArch64, RISC-V 64 and ARMv6, run under qemu-user, compare the hash; and
            run the x86-64 program on an emulated CPU without AVX2
  --fuzz    also build the fuzz targets with clang, replay their corpora and run each for a while
  --tsan    also run all tests under ThreadSanitizer
  --help    this text

What is missing for the asked checks is installed first, by ./install.sh.
END
}

want_quick=no want_cross=no want_fuzz=no want_tsan=no
for option in "$@"; do
    case $option in
        --quick) want_quick=yes ;;
        --cross) want_cross=yes ;;
        --fuzz) want_fuzz=yes ;;
        --tsan) want_tsan=yes ;;
        --help | -h) usage && exit 0 ;;
        *) usage >&2 && exit 2 ;;
    esac
done

# Installs what is missing, and does nothing where nothing is.
deps() { ./install.sh --deps "$1" </dev/null || exit 1; }
deps test
[ $want_cross = no ] || deps cross
[ $want_fuzz = no ] || deps fuzz

jobs=$(nproc 2>/dev/null || echo 2)
logs=build/test-logs
mkdir -p $logs || exit 1
n_passed=0 n_failed=0
failures=()

have() { command -v "$1" >/dev/null; }
if have ccache; then export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}; fi

# ---- one check

passed() {
    n_passed=$((n_passed + 1))
    echo "ok      $*"
}
failed() {
    n_failed=$((n_failed + 1))
    failures+=("$1")
    echo "FAILED  $*"
}
skipped() { echo "skipped $*"; }

# check NAME COMMAND...: its output goes to a log, and is shown if it fails.
check() {
    local name=$1 log="$logs/${1//[^a-zA-Z0-9._-]/-}.log" start=$SECONDS
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        passed "$name ($((SECONDS - start)) s)"
    else
        tail -n 80 "$log"
        failed "$name (exit code or check; whole output in $log)"
        return 1
    fi
}

# ---- static checks

sources() { git ls-files '*.cpp' '*.h' 2>/dev/null || find src tests tools bench -name '*.cpp' -o -name '*.h'; }

static_checks() {
    if have python3; then check layers python3 tools/check_layers.py; else skipped "layers: no python3"; fi
    # Other versions lay some lines out differently.
    if have clang-format && clang-format --version | grep -q 'version 14\.'; then
        # shellcheck disable=SC2046  # a list of files
        check format clang-format --dry-run -Werror $(sources)
    else
        skipped "format: needs clang-format 14"
    fi
    if have shellcheck; then
        check shellcheck shellcheck install.sh test.sh .ci/run tools/*.sh
    else
        skipped "shellcheck: not installed"
    fi
}

# ---- builds and their tests

build() { # PRESET [CMAKE OPTION...]
    local preset=$1
    shift
    check "build $preset" build_quietly "$preset" "$@"
}
build_quietly() {
    local preset=$1
    shift
    cmake --preset "$preset" "$@" && cmake --build --preset "$preset" -j "$jobs" || return 1
}
no_warnings() { ! grep -E 'warning:' "$logs/build-$1.log"; }

# Every test of a preset counts by itself.
run_ctest() { # PRESET
    local log="$logs/ctest-$1.log" summary total bad start=$SECONDS
    ctest --preset "$1" -j "$jobs" >"$log" 2>&1 </dev/null
    summary=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$log")
    total=${summary##* }
    bad=$(sed -E 's/.*passed, ([0-9]+) .*/\1/' <<<"$summary")
    if [ -z "$summary" ] || [ "$total" -eq 0 ]; then
        tail -n 40 "$log"
        failed "tests $1: ctest ran nothing"
        return
    fi
    n_passed=$((n_passed + total - bad))
    n_failed=$((n_failed + bad))
    if [ "$bad" -gt 0 ]; then
        grep -vE '^ *(Start|[0-9]+/[0-9]+ Test .* Passed)' "$log" | tail -n 150
        failures+=("tests $1: $bad")
    fi
    echo "tests $1: $((total - bad)) of $total passed," \
        "$(grep -c 'Test .*\*\*\*Skipped' "$log") of them skipped ($((SECONDS - start)) s)"
}

# ---- one answer everywhere

host_hash=

level_hashes() { # PROGRAM...
    local level hash
    for level in $("$@" --levels); do
        hash=$("$@" --level "$level") || return 1
        echo "$hash $level"
        : "${host_hash:=$hash}"
        [ "$hash" = "$host_hash" ] || return 1
    done
    [ -n "$host_hash" ]
}

# The same with other types of keys and values.
kv_level_hashes() { # PROGRAM...
    local host_hash=${host_kv_hash-}
    level_hashes "$@" --kv-type q8_0,q4_0 || return 1
    host_kv_hash=$host_hash
}

same_hash() { # PROGRAM...
    local hash
    hash=$("$@") || return 1
    echo "$hash, expected $host_hash"
    [ "$hash" = "$host_hash" ]
}

# The levels of a CPU, best first.
has_levels() { # LEVELS PROGRAM...
    local levels
    levels=$("${@:2}" --levels | paste -sd' ')
    echo "$levels, expected $1"
    [ "$levels" = "$1" ]
}

# State that was computed and exported here is used there: with nothing left to compute, and with a
# prompt that goes on. The answers are those of here, without a cache.
cache_travels() { # PROGRAM...
    local dir=build/cache-travels here=build/release/picolm kv prompt n
    local text="You are a patient helper. Answer in one short sentence, and say so when you do not"
    text+=" know. The time is 10:15 and the light in the kitchen is on."
    rm -rf $dir && mkdir -p $dir || return 1
    build/release/make_model --preset tiny $dir/model.gguf || return 1
    for kv in f16 q8_0 q8_0,q4_0; do
        local options=(-t 0 -n 12 --kv-type "$kv")
        $here $dir/model.gguf -p "$text" "${options[@]}" --cache-dir $dir/$kv >/dev/null || return 1
        $here cache export $dir/$kv $dir/$kv.kvc || return 1
        for prompt in "$text" "$text Please turn it off, and then the one in the hall."; do
            $here $dir/model.gguf -p "$prompt" "${options[@]}" >$dir/want || return 1
            "$@" $dir/model.gguf -p "$prompt" "${options[@]}" --cache $dir/$kv.kvc --cache-ro \
                >$dir/got 2>$dir/log || return 1
            cat $dir/log
            n=$(sed -n 's/^Skipping \([0-9]*\) cached prompt tokens$/\1/p' $dir/log)
            [ "${n:-0}" -gt 64 ] || return 1
            cmp $dir/want $dir/got || return 1
        done
    done
}

# In as many parts as there are CPUs: under an emulator the kernel tests take a minute.
emulated_tests() { # PROGRAM...
    local i pid bad=0 pids=()
    for ((i = 0; i < jobs; ++i)); do
        GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$i "$@" --gtest_brief=1 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || bad=1; done
    return $bad
}

is_static() { ! readelf -lW "$1" | grep -q INTERP; }

cross() { # PRESET EMULATOR...
    local preset=$1
    shift
    have "$1" || { failed "cross $preset: no $1" && return; }
    local options=()
    [ "$preset" != aarch64 ] || options=(-DPICOLM_TESTS=ON)
    build "$preset" "${options[@]}" || return
    check "no warnings $preset" no_warnings "$preset"
    check "static $preset" is_static "build/$preset/picolm"
    check "program $preset" "$@" "build/$preset/picolm" --version
    check "a cache exported here, used by $preset" cache_travels "$@" "build/$preset/picolm"
    case $preset in
        aarch64) aarch64_levels "$@" ;;
        armv6)
            # Not promised for 32 bits, only reported.
            if same_hash "$@" "build/$preset/logits_hash"; then
                passed "logits hash $preset"
            else
                echo "note    logits hash $preset differs (nothing is promised there)"
            fi
            ;;
        *) check "logits hash $preset" same_hash "$@" "build/$preset/logits_hash" ;;
    esac
}

# The kernel tests are linked to the cross compiler's shared libraries.
aarch64_levels() { # EMULATOR...
    local program=build/aarch64/logits_hash
    check "levels of a Cortex-A72" has_levels "neon generic" "$1" -cpu cortex-a72 $program
    check "levels of a Cortex-A76" has_levels "dotprod neon generic" "$1" -cpu cortex-a76 $program
    check "levels of AArch64" has_levels "i8mm dotprod neon generic" "$@" -cpu max $program
    check "logits hash of all AArch64 levels" level_hashes "$@" -cpu max $program
    check "logits hash of all AArch64 levels, KV q8_0 and q4_0" \
        kv_level_hashes "$@" -cpu max $program
    check "weak symbols aarch64" tools/check_isa_symbols.sh build/aarch64
    check "kernel tests aarch64" emulated_tests "$@" -cpu max -L /usr/aarch64-linux-gnu \
        build/aarch64/tests/test_kernels
}

run_cross() {
    cross aarch64 qemu-aarch64-static
    cross riscv64 qemu-riscv64-static
    cross armv6 qemu-arm-static -cpu arm1176
    [ "$(uname -m)" = x86_64 ] || return
    if have qemu-x86_64-static; then
        # The oldest x86-64 and a CPU of 2008: an instruction that they lack ends the program.
        local cpu
        for cpu in qemu64 Nehalem; do
            check "logits hash $cpu" \
                same_hash qemu-x86_64-static -cpu "$cpu" build/release/logits_hash
            check "test_kernels $cpu" \
                qemu-x86_64-static -cpu "$cpu" build/release/tests/test_kernels --gtest_filter=-*emulated*
        done
    else
        failed "cross: no qemu-x86_64-static"
    fi
}

# ---- fuzzing

fuzz() { # PROGRAM
    local name=${1##*/} found limits=(-malloc_limit_mb=64 -rss_limit_mb=2048 -timeout=30)
    local corpus=tests/fuzz/corpus/${name%_fuzz}
    found=$(mktemp -d)
    check "corpus $name" "$1" -runs=0 "${limits[@]}" "$corpus"
    check "fuzz $name" "$1" -runs=20000 -max_total_time=120 -seed=1 "${limits[@]}" \
        -artifact_prefix="$logs/" "$found" "$corpus"
    rm -rf "$found"
}

run_fuzz() {
    have clang++ || { failed "fuzz: no clang++" && return; }
    build fuzz || return
    check "no warnings fuzz" no_warnings fuzz
    check "logits hash clang" same_hash build/fuzz/logits_hash
    local program
    for program in build/fuzz/tests/fuzz/*_fuzz; do fuzz "$program"; done
}

# ---- all

static_checks
if build release -DPICOLM_TESTS=ON; then
    check "no warnings release" no_warnings release
    check "weak symbols" tools/check_isa_symbols.sh build/release
    check "logits hash of all levels" level_hashes build/release/logits_hash
    check "logits hash of all levels, KV q8_0 and q4_0" kv_level_hashes build/release/logits_hash
    run_ctest release
    [ $want_cross = no ] || run_cross
fi
[ $want_fuzz = no ] || run_fuzz
if [ $want_quick = no ] && build debug; then run_ctest debug; fi
if [ $want_tsan = yes ] && build tsan; then run_ctest tsan; fi

echo
[ ${#failures[@]} -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
echo "$n_passed passed, $n_failed failed"
[ $n_failed -eq 0 ]
