#!/bin/sh
# get_model.sh [DIR]: downloads TinyLlama 1.1B Chat, Q4_K_M, into DIR (default: models). A broken
# download is resumed by the next call.
set -eu

name=tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf
url=${PICOLM_MODEL_URL:-https://huggingface.co/TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF/resolve/main/$name}
size_mb=638
dir=${1:-models}
file=$dir/$name
part=$file.part

fail() {
    echo "get_model.sh: $*" >&2
    exit 1
}

if [ -f "$file" ]; then
    echo "$file is already there"
    exit 0
fi
command -v curl >/dev/null 2>&1 || fail "curl is missing (Debian: apt-get install curl)"
mkdir -p "$dir"

done_mb=0
[ ! -f "$part" ] || done_mb=$(($(wc -c <"$part") / 1048576))
free_mb=$(($(df -Pk "$dir" | awk 'NR == 2 { print $4 }') / 1024))
need_mb=$((size_mb - done_mb + 20))
[ "$free_mb" -ge "$need_mb" ] ||
    fail "$dir has $free_mb MB free, $need_mb MB are needed; give another folder: get_model.sh DIR"

echo "Downloading $name ($size_mb MB, $done_mb MB are there) from $url"
curl --fail --location --continue-at - --retry 3 --connect-timeout 20 --output "$part" "$url" || {
    code=$?
    case $code in
        6 | 7) fail "the download failed: no network (curl said $code). Run it again later" ;;
        22) fail "the download failed: the server refuses $url" ;;
        33) fail "the server cannot resume a download: delete $part and run it again" ;;
        *) fail "the download failed (curl said $code). Run it again to resume" ;;
    esac
}
# An error page that a proxy serves as a success is no model.
[ "$(head -c 4 "$part")" = GGUF ] || {
    rm -f "$part"
    fail "what $url sent is not a GGUF file; it was deleted"
}
mv "$part" "$file"
echo "Done: $file"
