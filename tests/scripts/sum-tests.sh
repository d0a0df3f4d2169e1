#!/bin/sh
# Shows scripts/sum-tests.sh some logs: sum-tests.sh FOLDER
set -eu
dir=$1
sum=$PWD/scripts/sum-tests.sh

log() { # NAME STATUS LINE...
    name=$1
    echo "$2" >"$dir/$name.log.status"
    shift 2
    printf '%s\n' "$@" >"$dir/$name.log"
}

expect() { # STATUS LAST-LINE LOG-NAME...
    want=$1
    line=$2
    shift 2
    for name; do
        set -- "$@" "$dir/$name.log"
        shift
    done
    got=0
    "$sum" "$@" >"$dir/out" || got=$?
    if [ "$got" != "$want" ] || [ "$(tail -n 1 "$dir/out")" != "$line" ]; then
        echo "expected $want, $line; found $got:"
        cat "$dir/out"
        exit 1
    fi
}

log good 0 "1 passed, 9 failed" "12 passed, 0 failed, 3 skipped"
log plain 0 "3 passed, 0 failed" "make: Leaving directory"
log bad 2 "10 passed, 2 failed" "make: *** Error 1"
log crashed 139 "ok 0.1 s first"
log odd 1 "5 passed, 0 failed"
log empty 0 "0 passed, 0 failed, 4 skipped"
expect 0 "15 passed, 0 failed" good plain
expect 1 "22 passed, 2 failed" good bad
expect 1 "12 passed, 1 failed" good crashed
expect 1 "5 passed, 1 failed" odd
expect 1 "0 passed, 0 failed" empty
grep -q '^  empty        0 passed, 0 failed, 4 skipped$' "$dir/out"
rm "$dir/good.log.status"
expect 0 "12 passed, 0 failed" good
