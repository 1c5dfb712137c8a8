#!/usr/bin/env bash
# Build the Debian package. Usage: packaging/debian/build.sh FOLDER
#
# Needs debhelper, dh-virtualenv, python3-dev, python3-venv and a package index. The package is put into FOLDER.
# DISQUE_PY_COMPILE=no makes one of plain Python. DEBFULLNAME and DEBEMAIL name the maintainer of the package.
set -euo pipefail
target=$(realpath "${1:?give the folder for the package}")
root=$(realpath "$(dirname "$0")/../..")
scratch=$(mktemp -d "${TMPDIR:-/tmp}/disque-deb.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

mkdir -p "$target" "$scratch/disque-py"
cd "$root"
cp -r bin cluster_bus conf disque_py docs packaging persistence CHANGELOG.md LICENSE README.md pyproject.toml setup.py \
    "$scratch/disque-py"
cp -r packaging/debian "$scratch/disque-py/debian"
cd "$scratch/disque-py"
find . -name __pycache__ -prune -exec rm -rf {} +
if [ -n "${DEBEMAIL:-}" ]; then
    maintainer="${DEBFULLNAME:-the disque-py authors} <$DEBEMAIL>"
    MAINTAINER=$maintainer perl -pi -e 's/^Maintainer: .*/Maintainer: $ENV{MAINTAINER}/' debian/control
    MAINTAINER=$maintainer perl -pi -e 's/^ -- .*?>  / -- $ENV{MAINTAINER}  /' debian/changelog
fi
dpkg-buildpackage --unsigned-source --unsigned-changes --build=binary
mv "$scratch"/*.deb "$scratch"/*.buildinfo "$scratch"/*.changes "$target"
