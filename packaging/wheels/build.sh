#!/usr/bin/env bash
# Build the files that are published on PyPI. Usage: packaging/wheels/build.sh FOLDER [all]
#
#   by default   the source distribution, a wheel of plain Python for every system (the client library on Windows), and,
#                with a C compiler, a compiled wheel for this system and Python
#   all          instead of the last one, compiled wheels for manylinux and musllinux and each Python, by cibuildwheel.
#                This needs a container engine. pyproject.toml has the settings: [tool.cibuildwheel]
#
# Each wheel is made from the source distribution and checked.
set -euo pipefail
target=$(realpath -m "${1:?give the folder for the files}")
root=$(realpath "$(dirname "$0")/../..")
scratch=$(mktemp -d "${TMPDIR:-/tmp}/disque-wheels.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

mkdir -p "$target"
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet build twine
build() { "$scratch/venv/bin/python" -m build "$@" > "$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }; }

build --sdist --outdir "$target" "$root"
mkdir "$scratch/sources"
tar xzf "$target"/*.tar.gz -C "$scratch/sources" --strip-components 1
DISQUE_PY_COMPILE=no build --wheel --outdir "$target" "$scratch/sources"
if [ "${2:-}" = all ]; then
    "$scratch/venv/bin/pip" install --quiet cibuildwheel
    (cd "$scratch/sources" && "$scratch/venv/bin/cibuildwheel" --platform linux --output-dir "$target")
elif command -v cc > /dev/null && [ "${DISQUE_PY_COMPILE:-}" != no ]; then
    DISQUE_PY_COMPILE=yes build --wheel --outdir "$target" "$scratch/sources"
fi
for wheel in "$target"/*.whl; do
    "$scratch/venv/bin/python" "$root/tests/house/check_wheel.py" "$wheel" "$target"/*.tar.gz
done
"$scratch/venv/bin/twine" check --strict "$target"/*
