#!/bin/sh
# Installs what tests need and runs the fast ones. Last line: N passed, N failed.
set -u
cd "$(dirname "$0")/.." || exit 1

# Without the tools of lint and fuzzing the tests still run; without the libraries they cannot.
scripts/deps.sh test || scripts/deps.sh build || {
    echo "0 passed, 1 failed"
    exit 1
}
mkdir -p build
log=build/check.log
{
    make --no-print-directory -j"$(nproc 2>/dev/null || echo 2)" BUILD=build check
    echo $? >$log.status
} 2>&1 | tee $log
exec scripts/sum-tests.sh $log
