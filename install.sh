#!/bin/sh
# install.sh: from a fresh Debian, Ubuntu or Raspberry Pi OS to ./picolm. See --help.
# shellcheck disable=SC2015  # in "a && b || fail", fail is meant for both
set -eu
cd "$(dirname "$0")"

usage() {
    cat <<'END'
Usage: ./install.sh [--demo] [--prefix DIR] [--deps SET]

Installs what is missing to build PicoLM (with apt, through sudo if you are not root; nothing is
touched when nothing is missing), builds it, and leaves the program as ./picolm.

  --demo        then run it twice on a small model and show what the prompt cache saves
  --prefix DIR  also install the program to DIR/bin
  --deps SET    only install packages: build, test, cross, fuzz, sanitize or all; build nothing
  --help        this text

It ends with 0 only if everything it was asked for was done.
END
}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

# The value on the first line of its arguments' output that follows "NAME: ".
field() {
    sed -n "s/^$1: //p" "$2" | head -n 1
}

# ---- packages

packages_of() {
    case $1 in
        build) echo g++ cmake make libcli11-dev libxxhash-dev nlohmann-json3-dev libhiredis-dev ;;
        test)
            echo "$(packages_of build)" libgtest-dev libsimde-dev redis-server python3 shellcheck \
                clang-format
            ;;
        cross)
            echo "$(packages_of build)" g++-aarch64-linux-gnu g++-riscv64-linux-gnu \
                g++-arm-linux-gnueabi qemu-user-static
            ;;
        fuzz) echo "$(packages_of build)" clang libclang-rt-dev ;;
        sanitize) packages_of test ;;
        all) echo "$(packages_of test)" "$(packages_of cross)" "$(packages_of fuzz)" ;;
        *) fail "--deps $1: there are build, test, cross, fuzz, sanitize and all" ;;
    esac
}

header() {
    [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]
}

# True if what the package is wanted for is there, whoever put it there.
present() {
    case $1 in
        g++ | cmake | make | python3 | shellcheck | clang-format | redis-server) command -v "$1" >/dev/null ;;
        clang) command -v clang++ >/dev/null ;;
        g++-*-linux-gnu*) command -v "${1#g++-}-g++" >/dev/null ;;
        qemu-user-static) command -v qemu-aarch64-static >/dev/null ;;
        libcli11-dev) header CLI/CLI.hpp ;;
        libxxhash-dev) header xxh3.h ;;
        nlohmann-json3-dev) header nlohmann/json.hpp ;;
        libgtest-dev) header gtest/gtest.h ;;
        libhiredis-dev) header hiredis/hiredis.h ;;
        libsimde-dev) header simde/x86/avx512.h ;;
        *) [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] ;;
    esac
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "this must be run as root, and there is no sudo: $*"
    fi
}

install_packages() {
    missing=
    for package in $(packages_of "$1"); do
        case " $missing " in *" $package "*) continue ;; esac
        present "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null ||
        fail "missing:$missing (Debian's names). There is no apt-get here: install them your way"
    echo "Installing:$missing"
    as_root apt-get update -q ||
        fail "apt-get update failed (see above; no network?). Missing:$missing"
    # shellcheck disable=SC2086  # the list is meant to be split
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        $missing || fail "apt-get could not install:$missing"
    for package in $missing; do
        present "$package" || fail "$package was installed, but what it should bring is not there"
    done
}

check_cmake() {
    version=$(cmake --version | sed -n 's/^cmake version //p')
    oldest=$(printf '3.22\n%s\n' "$version" | sort -V | head -n 1)
    [ "$oldest" = 3.22 ] || fail "cmake $version is too old, 3.22 is needed (Debian 12 has 3.25)"
}

# ---- build

# A compiler process may take 700 MB: no more of them than the memory holds.
n_jobs() {
    cpus=$(nproc 2>/dev/null || echo 1)
    free=$(awk '/^MemAvailable:/ { print int($2 / 700000) }' /proc/meminfo 2>/dev/null || echo 1)
    [ "${free:-1}" -ge 1 ] || free=1
    if [ "$free" -lt "$cpus" ]; then echo "$free"; else echo "$cpus"; fi
}

build() {
    cmake --preset release -DPICOLM_TESTS=OFF &&
        cmake --build --preset release -j "$(n_jobs)" --target "$@" ||
        fail "the build failed (see above)"
    cp -f build/release/picolm picolm
    ./picolm --version || fail "the program was built but does not run"
    echo "The program is ./picolm"
}

install_to() {
    run=
    mkdir -p "$1/bin" 2>/dev/null && [ -w "$1/bin" ] || run=as_root
    $run mkdir -p "$1/bin" && $run install -m 755 picolm "$1/bin/picolm" ||
        fail "cannot install to $1/bin"
    echo "Installed: $1/bin/picolm"
}

# ---- demo

demo_run() { # NAME
    ./picolm build/demo/demo.gguf --cache build/demo/prompt.kvc -f build/demo/prompt.txt -n 24 -t 0 \
        >"build/demo/$1.out" 2>"build/demo/$1.log" </dev/null || {
        cat "build/demo/$1.log" >&2
        fail "demo: the $1 run failed"
    }
}

demo() {
    echo
    echo "== Demo: the same prompt twice"
    echo "The model is made here, with random weights: what it answers means nothing. It shows that"
    echo "the second run does not compute the prompt again, and still answers the same bytes."
    mkdir -p build/demo
    rm -f build/demo/prompt.kvc build/demo/*.out build/demo/*.log
    build/release/make_model --preset small --n-ctx 1024 build/demo/demo.gguf ||
        fail "demo: the model could not be made"
    cat >build/demo/prompt.txt <<'END'
You are the assistant of a small house. You switch lamps, set the heating and answer questions
about the rooms. The rooms are: kitchen (ceiling lamp, kettle, radiator), living room (floor lamp,
reading lamp, radiator, blinds), bedroom (bedside lamp, radiator, blinds), bath (mirror lamp, fan,
towel heater), hall (ceiling lamp, door bell) and garden (path lights, sprinkler, gate). Answer
with one short sentence, or with one command. Never switch the gate at night. Ask when a room has
two lamps and the user did not say which one is meant.
User: It is getting dark, please make some light where I read.
Assistant:
END
    demo_run first
    demo_run second
    first=$(field "Time to first token" build/demo/first.log)
    second=$(field "Time to first token" build/demo/second.log)
    reused=$(sed -n 's/^Reused \([0-9]* of [0-9]*\) prompt tokens.*/\1/p' build/demo/second.log)
    n=${reused%% *}
    [ -n "$first" ] && [ -n "$second" ] || fail "demo: no time to first token was reported"
    [ -s build/demo/first.out ] || fail "demo: the answer is empty"
    [ -n "$n" ] && [ "$n" = "${reused##* }" ] && [ "$n" -gt 0 ] || {
        cat build/demo/second.log >&2
        fail "demo: the second run did not reuse the whole prompt (reused: ${reused:-nothing})"
    }
    cmp build/demo/first.out build/demo/second.out || fail "demo: the two answers differ"
    echo
    printf '  %-12s %-48s %s\n' run "time to first token" "prompt tokens reused"
    printf '  %-12s %-48s %s\n' first "$first" "0 of $n"
    printf '  %-12s %-48s %s\n' second "$second" "$reused"
    echo
    echo "Both answers are the same $(wc -c <build/demo/first.out) bytes. Try it with a real model:"
    echo "  make model"
    echo "  ./picolm models/tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf --cache prompt.kvc -p \"Hello\" -n 50"
}

# ---- main

want_demo=no
prefix=
deps=
while [ $# -gt 0 ]; do
    case $1 in
        --demo) want_demo=yes ;;
        --prefix | --deps)
            [ $# -ge 2 ] || fail "$1 needs a value"
            if [ "$1" = --prefix ]; then prefix=$2; else deps=$2; fi
            shift
            ;;
        --help | -h)
            usage
            exit 0
            ;;
        *)
            usage >&2
            fail "unknown option $1"
            ;;
    esac
    shift
done

if [ -n "$deps" ]; then
    install_packages "$deps"
    exit 0
fi
install_packages build
check_cmake
if [ "$want_demo" = yes ]; then build picolm make_model; else build picolm; fi
[ -z "$prefix" ] || install_to "$prefix"
[ "$want_demo" = no ] || demo
