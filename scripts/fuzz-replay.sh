#!/bin/sh
# Replays the committed fuzz corpora: scripts/fuzz-replay.sh DIR NAME...   (`make fuzz-replay`)
#
# DIR/NAME is a fuzz target linked with tests/fuzz/driver.c, its corpus tests/fuzz/corpus/NAME.
# Last line: N passed, N failed, N skipped; one for each target.
set -u
cd "$(dirname "$0")/.." || exit 1
dir=$1
shift
passed=0 failed=0 skipped=0
for name; do
    corpus=tests/fuzz/corpus/$name
    if [ ! -d "$corpus" ]; then
        echo "skip  $name: no $corpus"
        skipped=$((skipped + 1))
    elif "$dir/$name" "$corpus"; then
        echo "ok    $name"
        passed=$((passed + 1))
    else
        echo "FAIL  $name"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
