#!/bin/sh
# Shows scripts/check-includes small trees: check-includes.sh FOLDER
set -eu
dir=$1
check=$PWD/scripts/check-includes

put() { # FILE INCLUDE...
    file=$dir/t/$1
    mkdir -p "$(dirname "$file")"
    shift
    printf '#include "%s"\n' "$@" >"$file"
}

clean() {
    rm -rf "$dir/t"
    put src/base/error.c smoe.h base/error.h
}

fails() { # the expected line
    if "$check" "$dir/t" >"$dir/out"; then
        echo "accepted, but expected: $1"
        exit 1
    fi
    if ! printf '%s\n' "$1" | cmp -s - "$dir/out"; then
        echo "expected: $1"
        echo "found:    $(cat "$dir/out")"
        exit 1
    fi
    clean
}

passes() {
    "$check" "$dir/t" || {
        echo "refused: $*"
        exit 1
    }
    clean
}

clean
put src/model/spec.c base/mem.h formats/tensor.h text/assets.h model/spec.h
put src/kernels/ref.c formats/dtype.h kernels/kernels.h
put src/layers/norm.c kernels/kernels.h scout/scout.h layers/norm.h
put src/conductor/plan.c layers/norm.h streamer/streamer.h base/log.h
put src/cli/run.c smoe.h cli/options.h base/utf8.h
passes "an orderly tree"
printf 'int x;\n  #  include  "model/spec.h"\n' >"$dir/t/src/base/x.h"
fails 'src/base/x.h:2: base must not include model ("model/spec.h")'
put src/sculptor/quant.c kernels/kernels.h layers/norm.h
fails 'src/sculptor/quant.c:2: sculptor must not include layers ("layers/norm.h")'
put src/text/bpe.c formats/tensor.h
fails 'src/text/bpe.c:1: text must not include formats ("formats/tensor.h")'
put src/cli/run.c conductor/session.h
fails 'src/cli/run.c:1: cli must not include conductor ("conductor/session.h")'
put src/kernels/gpu/load.c layers/norm.h
fails 'src/kernels/gpu/load.c:1: kernels must not include layers ("layers/norm.h")'
put src/layers/norm.c norm.h
fails 'src/layers/norm.c:1: say which module: "layers/norm.h"'
put src/layers/norm.c ../cli/run.h
fails 'src/layers/norm.c:1: relative include "../cli/run.h"'
put src/extra/a.c base/mem.h
fails 'src/extra/a.c:1: src/extra has no place in the include order'
put include/smoe.h base/mem.h
fails 'include/smoe.h:1: the public header includes "base/mem.h"'
