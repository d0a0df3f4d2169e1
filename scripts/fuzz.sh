#!/bin/sh
# Runs libFuzzer targets: scripts/fuzz.sh DIR SECONDS NAME...   (called by `make fuzz`)
#
# DIR/fuzzer/NAME is the program. What it learns is kept in DIR/corpus/NAME, beside the committed
# tests/fuzz/corpus/NAME, which it only reads; inputs that crash land in DIR/crashes. To keep a
# finding as a test, copy it into the committed folder.
set -u
cd "$(dirname "$0")/.." || exit 1
dir=$1
seconds=$2
shift 2
bad=
mkdir -p "$dir/crashes"
for name; do
    mkdir -p "$dir/corpus/$name"
    seeds=
    [ ! -d "tests/fuzz/corpus/$name" ] || seeds=tests/fuzz/corpus/$name
    printf '\n=== %s, %s s\n' "$name" "$seconds"
    # shellcheck disable=SC2086 # no argument rather than an empty one
    "$dir/fuzzer/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix="$dir/crashes/$name-" \
        "$dir/corpus/$name" $seeds || bad="$bad $name"
done
if [ -n "$bad" ]; then
    echo "fuzz: findings by:$bad (inputs in $dir/crashes)"
    exit 1
fi
echo "fuzz: nothing found"
