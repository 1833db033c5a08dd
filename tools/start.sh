#!/bin/sh
# Installs what is missing, builds a release and continues a prompt with the model that ships. Arguments are passed on to
# `descent run`: tools/start.sh "ROMEO:" --steps 12.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/release
{
    "$root/tools/setup.sh"
    # A build that has tests keeps them.
    [ -e "$build/build.ninja" ] || cmake --preset release -S "$root" -DBUILD_TESTING=OFF
    cmake --build "$build" -j "$(nproc)"
} >&2
[ $# -gt 0 ] || set -- "ROMEO:
" --temperature 0.6 --max-tokens 110
exec "$build/descent" run "$root/models/nrgpt-shakespeare.gguf" "$@"
