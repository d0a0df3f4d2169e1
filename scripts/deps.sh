#!/bin/sh
# Installs what is missing, through the system's package manager.
#
#     scripts/deps.sh [-y] [build | test | dev | arm]    default: build
#
#   build  compiler, make and the libraries smoe is built from
#   test   also what checks it: clang with its fuzzer, clang-format, clang-tidy, shellcheck
#   dev    also a cross compiler for aarch64 and gdb
#   arm    as build, and what `make check-arm` needs: that compiler, qemu, and on Debian the
#          libraries for arm64, which is added as a foreign architecture
#
# Looks for commands and libraries, not for names of packages; does nothing when all is there. Says
# what it will install; on a terminal it asks once (-y: it does not). Uses sudo when not root.
set -eu

yes=
[ "${1:-}" != -y ] || {
    yes=1
    shift
}
level=${1:-build}
case $level in
build | test | dev | arm) ;;
*)
    echo "usage: scripts/deps.sh [-y] [build | test | dev | arm]" >&2
    exit 2
    ;;
esac

has() {
    command -v "$1" >/dev/null 2>&1
}

has_library() {
    { has pkg-config || has pkgconf; } && ${PKG_CONFIG:-pkg-config} --exists "$1" 2>/dev/null
}

# A compiler without the C library's headers does not count.
has_compiler() {
    has "$1" && echo '#include <stdlib.h>' | "$1" -E -x c - >/dev/null 2>&1
}

has_fuzzer() {
    has clang || return 1
    out=$(mktemp)
    fine=0
    echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p && n ? 0 : 0; }' |
        clang -fsanitize=fuzzer,address -x c - -o "$out" 2>/dev/null || fine=1
    rm -f "$out"
    return $fine
}

manager=
for m in apt-get dnf pacman zypper apk; do
    if has $m; then
        manager=$m
        break
    fi
done

missing=
want() { # PACKAGE for: apt-get dnf pacman zypper apk; - where it comes with another or is not there
    case $manager in
    dnf) package=$2 ;;
    pacman) package=$3 ;;
    zypper) package=$4 ;;
    apk) package=$5 ;;
    *) package=$1 ;;
    esac
    case " $missing " in
    *" $package "*) ;;
    *) [ "$package" = - ] || missing="$missing $package" ;;
    esac
}

find_missing() {
    missing=
    has_compiler "${CC:-cc}" || {
        want gcc gcc gcc gcc gcc
        want libc6-dev glibc-devel - glibc-devel musl-dev
        want - - - - linux-headers
    }
    has make || want make make make make make
    has pkg-config || want pkg-config pkgconf-pkg-config pkgconf pkg-config pkgconf
    has_library json-c || want libjson-c-dev json-c-devel json-c libjson-c-devel json-c-dev
    has_library libpcre2-8 || want libpcre2-dev pcre2-devel pcre2 pcre2-devel pcre2-dev
    has_library libutf8proc ||
        want libutf8proc-dev utf8proc-devel libutf8proc utf8proc-devel utf8proc-dev
    has_library libxxhash || want libxxhash-dev xxhash-devel xxhash xxhash-devel xxhash-dev
    has_library liburing || want liburing-dev liburing-devel liburing liburing-devel liburing-dev
    has_library libedit || want libedit-dev libedit-devel libedit libedit-devel libedit-dev
    [ "$level" != arm ] || find_missing_arm
    case $level in build | arm) return 0 ;; esac
    has clang || want clang clang clang clang clang
    has_fuzzer || want "$(debian_fuzzer)" compiler-rt compiler-rt - compiler-rt
    { has clang-format || has clang-format-14; } ||
        want clang-format clang-tools-extra clang clang-tools clang-extra-tools
    has clang-tidy || want clang-tidy clang-tools-extra clang clang-tools clang-extra-tools
    has shellcheck || want shellcheck ShellCheck shellcheck ShellCheck shellcheck
    [ "$level" != test ] || return 0
    find_missing_cross
    has gdb || want gdb gdb gdb gdb gdb
}

find_missing_cross() {
    has_compiler aarch64-linux-gnu-gcc || {
        want gcc-aarch64-linux-gnu gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc - -
        want libc6-dev-arm64-cross - aarch64-linux-gnu-glibc - -
    }
}

find_missing_arm() {
    find_missing_cross
    has qemu-aarch64 || want qemu-user qemu-user qemu-user qemu-linux-user qemu-aarch64
    [ "$manager" = apt-get ] || return 0
    pc=/usr/lib/aarch64-linux-gnu/pkgconfig
    [ -e $pc/json-c.pc ] || want libjson-c-dev:arm64
    [ -e $pc/libpcre2-8.pc ] || want libpcre2-dev:arm64
    [ -e $pc/libutf8proc.pc ] || want libutf8proc-dev:arm64
    [ -e $pc/libxxhash.pc ] || want libxxhash-dev:arm64
}

# Its name holds the version of the distribution's clang; before clang 14 it came with another one.
debian_fuzzer() {
    [ "$manager" = apt-get ] || {
        echo libclang-rt-dev
        return
    }
    version=$(apt-cache depends clang 2>/dev/null | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p')
    name=libclang-rt-${version:-14}-dev
    apt-cache show "$name" >/dev/null 2>&1 || name=libclang-common-${version:-14}-dev
    echo "$name"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif has sudo; then
        sudo "$@"
    elif has doas; then
        doas "$@"
    else
        echo "deps: need root (and there is no sudo) to run: $*" >&2
        return 1
    fi
}

install_packages() {
    case $manager in
    apt-get)
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends "$@"
        ;;
    dnf) as_root dnf install -y "$@" ;;
    pacman) as_root pacman -S --needed --noconfirm "$@" ;;
    zypper) as_root zypper --non-interactive install "$@" ;;
    apk) as_root apk add "$@" ;;
    esac
}

find_missing
if [ -z "$missing" ]; then
    exit 0
fi
if [ -z "$manager" ]; then
    echo "deps: no package manager known here; please install (Debian's names):$missing" >&2
    exit 1
fi
if [ "$manager" = apt-get ]; then
    if [ "$level" = arm ] && ! dpkg --print-foreign-architectures | grep -qx arm64; then
        echo "deps: adding the foreign architecture arm64"
        as_root dpkg --add-architecture arm64
    fi
    echo "deps: refreshing the list of packages"
    as_root apt-get update -qq || echo "deps: that failed; trying with the list there is" >&2
    find_missing # names may depend on the list
fi
echo "deps: installing through $manager:$missing"
if [ -z "$yes" ] && [ -t 0 ] && [ -t 1 ]; then
    printf 'Go on? [Y/n] '
    read -r answer
    case $answer in
    '' | y* | Y*) ;;
    *)
        echo "deps: nothing installed" >&2
        exit 1
        ;;
    esac
fi
# shellcheck disable=SC2086 # a list of names
install_packages $missing </dev/null || {
    echo "deps: $manager could not install:$missing" >&2
    exit 1
}
find_missing
if [ -n "$missing" ]; then
    echo "deps: installed, but still not found:$missing" >&2
    exit 1
fi
echo "deps: all there"
