#!/bin/sh
# Runs stages of the checks one after another and sums their results.
#
#     scripts/stages.sh [-t SECONDS] STAGE...
#
# Each stage prints a header and has a time limit; -t bounds them all together, and a stage for
# which no time is left, or which the common limit cuts short, is said to be skipped. Logs are in
# $BUILD/log. Last line: N passed, N failed. Environment: BUILD (build), MAKE (make).
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
MAKE=${MAKE:-make}
case " ${MAKEFLAGS:-} " in
*-j*) jobs= ;; # a make above us has said how many
*) jobs=-j$(nproc 2>/dev/null || echo 2) ;;
esac

make_in() { # BUILD ARGUMENT...
    build=$1
    shift
    # shellcheck disable=SC2086 # no argument rather than an empty one
    "$MAKE" --no-print-directory $jobs BUILD="$build" "$@"
}

# The command of a stage. Where it prints no counts, say `once`: it passes or fails as a whole.
command_of() {
    case $1 in
    check) ./scripts/check.sh ;;
    fast) make_in "$BUILD" check ;;
    thorough) SMOE_TEST_ALL=1 make_in "$BUILD" check ;;
    one-thread) SMOE_TEST_THREADS=1 make_in "$BUILD" check ;;
    ring-floor) SMOE_TEST_RING=floor make_in "$BUILD" check ;;
    io-threads) SMOE_TEST_IO=threads make_in "$BUILD" check ;;
    portable) SMOE_TEST_ISA=portable make_in "$BUILD" check ;;
    chunk-1) SMOE_TEST_CHUNK=1 make_in "$BUILD" check ;;
    asan | ubsan | tsan | fuzz-replay) make_in "$BUILD" "$1" ;;
    lint) once make_in "$BUILD" lint ;;
    style) LINT_WITHOUT=tidy once make_in "$BUILD" lint ;;
    warnings) once warnings ;;
    install) once tests/scripts/install.sh ;;
    arm) make_in "$BUILD" check-arm ;;
    *)
        echo "no stage named $1"
        return 2
        ;;
    esac
}

once() {
    if "$@"; then
        echo "1 passed, 0 failed"
    else
        echo "0 passed, 1 failed"
        return 1
    fi
}

# Both compilers, warnings as errors.
warnings() {
    for cc in gcc clang; do
        if command -v $cc >/dev/null; then
            make_in "$BUILD/$cc" CC=$cc WERROR=-Werror all "$BUILD/$cc/smoe-test" || return 1
        else
            echo "warnings: no $cc here"
        fi
    done
}

# A stage in a process of its own, so that `timeout` can end it with all it has started.
if [ "${1:-}" = --only ]; then
    command_of "$2"
    exit
fi

total_s=86400
if [ "${1:-}" = -t ]; then
    total_s=$2
    shift 2
fi
deadline=$(($(date +%s) + total_s))
logs=$BUILD/log
rm -rf "$logs"
mkdir -p "$logs"

for stage; do
    log=$logs/$stage.log
    left_s=$((deadline - $(date +%s)))
    stage_limit_s=1200
    limit_s=$stage_limit_s
    [ "$limit_s" -le "$left_s" ] || limit_s=$left_s
    printf '\n=== %s\n' "$stage"
    if [ "$limit_s" -lt 20 ]; then
        echo "skipped: no time left"
        echo "0 passed, 0 failed, 1 skipped" >"$log"
        continue
    fi
    {
        BUILD=$BUILD MAKE=$MAKE timeout -k 10 "$limit_s" \
            scripts/stages.sh --only "$stage" </dev/null
        echo $? >"$log.status"
    } 2>&1 | tee "$log"
    [ "$(cat "$log.status")" != 124 ] || {
        echo "$stage: over its time limit of $limit_s s"
        if [ "$limit_s" -lt "$stage_limit_s" ]; then # not the stage is slow, the time is up
            echo "0 passed, 0 failed, 1 skipped" >"$log"
            echo 0 >"$log.status"
        fi
    }
done

printf '\n=== sum\n'
for stage; do
    shift
    set -- "$@" "$logs/$stage.log"
done
exec scripts/sum-tests.sh "$@"
