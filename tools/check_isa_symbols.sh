#!/bin/sh
# check_isa_symbols.sh BUILD_DIR: an object file compiled for an instruction-set level may define no
# weak symbol. The linker keeps one copy of those, and if it is this one, a CPU without the level
# dies in a function that has nothing to do with it.
set -eu
cd "$(dirname "$0")/.."
objects=$1/CMakeFiles/picolm_kernels.dir/src/kernels
bad=0 n=0
levels=$(sed -n 's/^ *picolm_isa(\([a-z0-9_]*\) .*/\1/p' cmake/kernels.cmake)
for level in $levels; do
    object=$objects/$level.cpp.o
    if [ "$level" = generic ] || [ ! -e "$object" ]; then continue; fi
    n=$((n + 1))
    weak=$(nm -C "$object" | awk '$2 ~ /^[WVu]$/')
    [ -z "$weak" ] || {
        echo "$object defines weak symbols:" "$weak" >&2
        bad=1
    }
done
echo "$n object files checked"
exit $bad
