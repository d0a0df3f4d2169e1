#!/bin/sh
# Builds smoe for aarch64 and runs under emulation (qemu) what depends on the processor: every
# kernel against the portable reference, and logits of the bundled model, streamed and resident,
# with the kernels of a new and of an old processor. What is missing for that is one line, and all
# is skipped. Last line: N passed, N failed, also N skipped. Environment: BUILD (build), MAKE
# (make), CROSS_ARM (the cross compiler), QEMU_ARM (the emulator), ARM_PKG_CONFIG_LIBDIR (where the
# .pc files of its libraries are), PKG_CONFIG.
set -u
cd "$(dirname "$0")/../.." || exit 1
out=${BUILD:-build}/arm
MAKE=${MAKE:-make}
cc=${CROSS_ARM:-aarch64-linux-gnu-gcc}
qemu=${QEMU_ARM:-qemu-aarch64}
libdir=${ARM_PKG_CONFIG_LIBDIR:-/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig}
pkg_config="env PKG_CONFIG_LIBDIR=$libdir ${PKG_CONFIG:-pkg-config}"
passed=0 failed=0

skip() {
    echo "check-arm: skipped, $*"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

command -v "$cc" >/dev/null || skip "no $cc here (scripts/deps.sh arm)"
command -v "$qemu" >/dev/null || skip "no $qemu here (scripts/deps.sh arm)"
mkdir -p "$out/check" || exit 1
printf '#include <stdlib.h>\nint main(void) { return abs(-7); }\n' >"$out/check/try.c"
"$cc" -o "$out/check/try" "$out/check/try.c" 2>/dev/null || skip "$cc finds no C library"
"$qemu" "$out/check/try"
[ $? = 7 ] || skip "$qemu does not run what $cc builds (no C library for aarch64 installed?)"
for library in json-c libpcre2-8 libutf8proc libxxhash; do
    $pkg_config --exists "$library" || skip "no $library for aarch64 in $libdir"
done

case " ${MAKEFLAGS:-} " in
*-j*) jobs= ;; # a make above us has said how many
*) jobs=-j$(nproc 2>/dev/null || echo 2) ;;
esac
# shellcheck disable=SC2086 # no argument rather than an empty one
"$MAKE" --no-print-directory $jobs CC="$cc" PKG_CONFIG="$pkg_config" BUILD="$out" \
    "$out/smoe" "$out/smoe-test" || {
    echo "0 passed, 1 failed"
    exit 1
}

check() { # WHAT COMMAND...
    what=$1
    shift
    if "$@"; then
        echo "ok     $what"
        passed=$((passed + 1))
    else
        echo "FAIL   $what"
        failed=$((failed + 1))
    fi
}

tests_pass() { # PATTERN...
    SMOE_TEST_SLOW=20 "$qemu" "$out/smoe-test" "$@"
}

seq 5 3 100 >"$out/check/ids"
logits() { # NAME MODEL OPTION...
    name=$1 model=$2
    shift 2
    rm -f "$out/check/$name"
    "$qemu" "$out/smoe" logits "$model" -q --no-learn --ids "$out/check/ids" \
        -o "$out/check/$name" "$@"
}

same() { # NAME NAME
    cmp "$out/check/$1" "$out/check/$2"
}

# Resident in one piece, and streamed through a small ring in chunks, give the same bits.
streams_alike() { # MODEL RING OPTION...
    model=$1 ring=$2
    shift 2
    logits resident "$model" --resident "$@" &&
        logits streamed "$model" --ring "$ring" --chunk 7 --threads 2 "$@" &&
        same resident streamed
}

# A processor without dot products takes the portable kernels, and says so when asked for others.
old_processor() {
    logits portable models/tales-8m --isa portable &&
        QEMU_CPU=cortex-a53 logits old models/tales-8m &&
        same portable old && ! QEMU_CPU=cortex-a53 logits none models/tales-8m --isa neon
}

check "the tests of the kernels" tests_pass kernels_ quants_
check "logits of a checkpoint, streamed and resident" streams_alike models/tales-8m 2M --isa neon
check "the same with a cache of int8 blocks" streams_alike models/tales-8m 2M --isa neon --kv q8
rm -f "$out"/check/q4.*
check "sculpt" "$qemu" "$out/smoe" sculpt models/tales-8m -q -o "$out/check/q4.smoe" --quant q4
check "logits of a vault, streamed and resident" streams_alike "$out/check/q4.smoe" 1M --isa neon
check "a processor without dot products" old_processor
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
