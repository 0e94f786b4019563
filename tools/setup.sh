#!/usr/bin/env bash
# Make .venv ready for work: find or install Python, Java and Node, then install Penstock with pinned packages.
# The Makefile runs this when .venv/.ready is missing, or older than what it is made from.
# VENV names another folder than .venv, PYTHON the Python that it is made with.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

say() { echo "setup: $*" >&2; }

may_install() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }

apt_install() {
    say "installing $*"
    {
        apt-get update -qq || true # the lists it has may do
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"
    } >&2
}

# Prints the first Python that is new enough and can make a venv.
find_python() {
    local name
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    return 1
}

ensure_python() {
    find_python && return
    [[ -z ${PYTHON:-} ]] && may_install && apt_install python3 python3-venv && find_python && return
    [[ -z ${PYTHON:-} ]] || say "$PYTHON is missing, is older than Python 3.11, or lacks its venv module"
    say "needs Python 3.11 or newer with its venv module: install python3 and python3-venv, then run make again"
    return 1
}

# Only Spark needs Java, so its absence stops nobody.
ensure_java() {
    command -v java >/dev/null && return
    may_install && apt_install default-jre-headless && return
    say "no Java: install Java 17 or newer (default-jre-headless) if you want Spark; going on without it"
}

# The outbox and the control plane oracle are tested with it; those tests are skipped where there is none.
ensure_postgresql() {
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null && return
    may_install && apt_install postgresql && return
    say "no PostgreSQL: tests of the outbox and of the control plane oracle that need it will be skipped"
}

# The web console is tested in it, and its pictures are drawn with that font; those tests are skipped where it is missing.
ensure_chromium() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null && return
    may_install && apt_install chromium fonts-inter && return
    say "no chromium: tests of the web console that need a browser will be skipped"
}

# Completion is tested in them; those tests are skipped where they are missing.
ensure_shells() {
    command -v zsh >/dev/null && command -v fish >/dev/null && return
    may_install && apt_install zsh fish && return
    say "no zsh, or no fish: tests of completion in them will be skipped"
}

# Packages of Node that only tests need: FOLDER with the pins, FOLDER to install into, what they are.
ensure_node_packages() {
    local packages=$1 installed=$2 what=$3
    cmp -s "$packages/package-lock.json" "$installed/package-lock.json" && return
    if command -v npm >/dev/null; then
        say "installing $what"
        rm -rf "$installed" "$installed.new"
        mkdir "$installed.new"
        cp "$packages/package.json" "$packages/package-lock.json" "$installed.new"
        (cd "$installed.new" && npm ci --silent --ignore-scripts --no-audit --no-fund --omit=optional >&2) &&
            mv "$installed.new" "$installed" && return
    fi
    say "no Node, or no way to its packages: tests against $what will be skipped"
}

ensure_node() {
    command -v node >/dev/null && command -v npm >/dev/null && return
    may_install && apt_install nodejs npm && return
    say "no Node: install nodejs and npm if you want all tests; going on without them"
}

# FutoIn event streams and buckets of Azure are tested beside what others wrote, where Node runs it.
ensure_references() {
    ensure_node
    ensure_node_packages tests/events/reference .futoin "the reference implementation of FutoIn"
    ensure_node_packages tests/azure .azurite "Azurite"
}

# Breezy answers for the storage kinds of repositories, in a process of its own, and is no part of the environment.
ensure_breezy() {
    local installed=$venv-breezy pin
    pin=$(grep ^breezy== constraints.txt)
    [[ -d $installed/${pin/==/-}.dist-info ]] && return
    rm -rf "$installed" "$installed.new"
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check --only-binary :all: --constraint constraints.txt \
        --target "$installed.new" breezy && mv "$installed.new" "$installed" && return
    say "no way to Breezy: tests against it will be skipped"
}

ensure_venv() {
    "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return
    local python
    python=$(ensure_python)
    say "making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
}

# Penstock itself is built with the pinned backend, which pip's isolated builds would not honour; the packages it
# needs come after it, since some of them must be built in isolation.
install_packages() {
    say "installing packages (about a minute)"
    local pip=("$venv/bin/python" -m pip install -qq --disable-pip-version-check)
    "${pip[@]}" --constraint constraints.txt hatchling
    "${pip[@]}" --no-build-isolation --no-deps --editable .
    "${pip[@]}" --constraint constraints.txt 'penstock-stream[bench,delta,dev,docs,events,examples,iceberg,interop,objects,pipelines,postgresql,repo,server,spark,top,tracing]'
}

ensure_java
ensure_postgresql
ensure_chromium
ensure_shells
ensure_venv
ensure_references &
ensure_breezy &
install_packages
wait
touch "$venv/.ready"
