#!/bin/sh
# Installs what is missing, builds a release and serves the models that ship; the server prints a request to try. Arguments are
# passed on to `descent serve`: tools/start.sh --port 8081.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/release
{
    "$root/tools/setup.sh"
    # A build that has tests keeps them.
    [ -e "$build/build.ninja" ] || cmake --preset release -S "$root" -DBUILD_TESTING=OFF
    cmake --build "$build" -j "$(nproc)"
} >&2
cd "$root/models"
exec "$build/descent" serve nrgpt-shakespeare.gguf nrgpt-listops.gguf nrgpt-listops-30k.gguf nrgpt-listops-scalar.gguf cem-kjv.gguf \
    "$@"
