#!/bin/sh
# All checks that need no run: scripts/lint.sh C-FILE...   (called by `make lint`)
#
# Each check runs even when an earlier one found something. A tool that is not installed is one
# printed line. Environment: BUILD, MAKE, CLANG_FORMAT, CLANG_TIDY, LINT_WITHOUT (tidy: leave out
# clang-tidy, which takes minutes).
set -u
cd "$(dirname "$0")/.." || exit 1
bad=

# clang-format differs between versions: the sources are in the format of version 14.
format() {
    tool=${CLANG_FORMAT:-}
    for name in clang-format-14 clang-format; do
        if [ -z "$tool" ] && $name --version 2>/dev/null | grep -q 'version 14\.'; then
            tool=$name
        fi
    done
    if [ -z "$tool" ]; then
        echo "lint: format not checked, no clang-format 14 here"
        return
    fi
    "$tool" -n -Werror "$@"
}

tidy() {
    tool=${CLANG_TIDY:-clang-tidy}
    if ! command -v "$tool" >/dev/null; then
        echo "lint: no $tool here"
        return
    fi
    case " ${MAKEFLAGS:-} " in
    *-j*) jobs= ;;
    *) jobs=-j$(nproc 2>/dev/null || echo 2) ;;
    esac
    # shellcheck disable=SC2086 # no argument rather than an empty one
    "${MAKE:-make}" --no-print-directory -k $jobs BUILD="${BUILD:-build}" tidy
}

scripts() {
    if ! command -v shellcheck >/dev/null; then
        echo "lint: no shellcheck here"
        return
    fi
    found=
    for f in scripts/* .ci/* tests/scripts/*; do
        if [ -f "$f" ] && head -n 1 "$f" | grep -Eq '^#!.*[/ ](sh|bash)$'; then
            shellcheck "$f" || found=yes
        fi
    done
    [ -z "$found" ]
}

check() { # NAME COMMAND...
    name=$1
    shift
    "$@" || bad="$bad $name"
}

check format format "$@"
check includes scripts/check-includes
check style scripts/check-style
check scripts scripts
[ "${LINT_WITHOUT:-}" = tidy ] || check tidy tidy
if [ -n "$bad" ]; then
    echo "lint: findings in:$bad"
    exit 1
fi
echo "lint: clean"
