#!/bin/sh
# Installs into an empty folder and builds a program against what is there, as an outsider would:
# with the shared and the static library, through pkg-config. Then uninstalls; nothing may remain.
# Environment: BUILD (build), MAKE (make), CC (cc).
set -eu
cd "$(dirname "$0")/../.."
MAKE=${MAKE:-make}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
dest="$root/a folder"
prefix=/opt/smoe

"$MAKE" --no-print-directory BUILD="${BUILD:-build}" DESTDIR="$dest" PREFIX=$prefix install
cat >"$root/try.c" <<'END'
#include <smoe.h>
#include <stdio.h>
int main(void) {
    smoe_info info;
    smoe_error err;
    int rc = smoe_describe("/nonexistent/model", &info, &err);
    printf("%d %s\n", rc, err.text);
    return rc == SMOE_ERR_IO ? 0 : 1;
}
END
# The tree is moved as a whole, so its prefix is too.
PKG_CONFIG_PATH="$dest$prefix/lib/pkgconfig"
export PKG_CONFIG_PATH
lib="$dest$prefix/lib"
[ "$(pkg-config --define-variable=prefix="$prefix" --modversion smoe)" = \
    "$(sed -n 's/^.define SMOE_VERSION "\(.*\)"/\1/p' include/smoe.h)" ]
${CC:-cc} -o "$root/shared" "$root/try.c" -I"$dest$prefix/include" -L"$lib" \
    "$(pkg-config --libs-only-l smoe | tr -d ' ')"
LD_LIBRARY_PATH="$lib" "$root/shared"
# shellcheck disable=SC2046 # a list of libraries
${CC:-cc} -o "$root/static" "$root/try.c" -I"$dest$prefix/include" "$lib/libsmoe.a" \
    $(pkg-config --static --libs-only-l smoe | sed 's/-lsmoe//')
"$root/static"
"$dest$prefix/bin/smoe" --version
"$MAKE" --no-print-directory DESTDIR="$dest" PREFIX=$prefix uninstall
left=$(find "$dest" ! -type d)
[ -z "$left" ] || {
    echo "left behind: $left"
    exit 1
}
