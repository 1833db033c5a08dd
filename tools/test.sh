#!/bin/sh
# Installs what is missing, builds every way and runs every test: less than fifteen minutes of tests on two cores. With --slow:
# the tests labelled slow instead, fuzzing and the count of lines the tests reach. The exit status is that of the first run that
# fails.
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh --tests
jobs=$(nproc)

build() {
    cmake --preset "$1" -DBUILD_TESTING=ON >/dev/null
    cmake --build --preset "$1" -j "$jobs"
}

run() {
    printf '\n== %s\n' "$1"
    ctest --preset "$1" -j "$jobs"
}

if [ "${1-}" = --slow ]; then
    for preset in release asan fuzz coverage; do
        build $preset
    done
    run fuzz
    find build/coverage -name '*.gcda' -delete
    run coverage
    gcovr --root . --filter engine/ --object-directory build/coverage --fail-under-line 90 --txt build/coverage/report.txt \
        --print-summary build/coverage
    run slow
    run asan-slow
    exit
fi

for preset in release asan tsan; do # gcc, clang, clang
    build $preset
done
for preset in asan tsan release; do
    run $preset
done
