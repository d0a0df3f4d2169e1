#!/bin/sh
# From a fresh clone to a tale: installs what is missing, builds, sculpts the bundled model into a
# vault and tells a story from it, with a ring that holds less than half of its experts.
#
#     scripts/demo.sh [SEED]
set -eu
cd "$(dirname "$0")/.."
seed=${1:-7}
vault=build/demo/tales-8m.smoe

run() {
    printf '\n$ %s' "$1"
    shift_first=1
    for word; do
        if [ -n "$shift_first" ]; then
            shift_first=
            continue
        fi
        case $word in
        *[!A-Za-z0-9_./=-]*) printf ' "%s"' "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$@"
}

scripts/deps.sh build
run make -j"$(nproc 2>/dev/null || echo 2)" build/smoe
mkdir -p build/demo
if [ ! -e "$vault" ]; then
    run build/smoe sculpt models/tales-8m -o "$vault" --quant q4
fi
# All experts take 4.5 MiB in the ring, those of one token 0.6: many have to come from the drive.
run build/smoe run "$vault" --prompt "Once upon a time there was a" -n 200 --temp 0.7 \
    --seed "$seed" --ring 2M --stats
