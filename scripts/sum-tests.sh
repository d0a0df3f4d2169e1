#!/bin/sh
# Sums test runs: scripts/sum-tests.sh LOG...
#
# Each LOG is the output of one run; its result is the last line of the form "N passed, N failed"
# (", N skipped"). LOG.status, when there, holds the exit status. A run without a result line, or
# one that ended badly although nothing is said to have failed, counts as one failure. Prints a line
# for each run and then, last, the sum; exit status 1 when anything failed or nothing passed.
set -eu
export LC_ALL=C

for log in "$@"; do
    status=0
    [ ! -e "$log.status" ] || status=$(cat "$log.status")
    name=$(basename "$log" .log)
    line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1) || :
    echo "$name ${status:-1} ${line:-none}"
done | awk '
    {
        line = $0
        sub(/^[^ ]* [^ ]* /, "", line)
        note = ""
        if ($3 == "none") {
            failed++
            note = "no result, exit status " $2
        } else {
            passed += $3
            failed += $5
            note = line
            if ($2 != 0 && $5 == 0) {
                failed++
                note = note ", but exit status " $2
            }
        }
        printf "  %-12s %s\n", $1, note
    }
    END {
        printf "%d passed, %d failed\n", passed, failed
        exit failed > 0 || passed == 0
    }'
