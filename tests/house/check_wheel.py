"""Check that built distributions contain what an installation needs.

Usage: python tests/house/check_wheel.py <wheel> <sdist>

.ci/run and `make wheel` build the files and call this program. It prints missing files, and then ends with status 1.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile

PACKAGES = ("disque_py", "cluster_bus", "persistence")
IN_BOTH = tuple(f"{package}/{name}" for package in PACKAGES for name in ("__init__.py", "py.typed"))
IN_WHEEL = (*IN_BOTH, "LICENSE", "conf/disque.conf", "entry_points.txt")
IN_SDIST = (
    *IN_BOTH,
    "LICENSE",
    "conf/disque.conf",
    "README.md",
    "CHANGELOG.md",
    "bin/test",
    "tests/house/check_wheel.py",
)


def missing(names: list[str], wanted: tuple[str, ...]) -> list[str]:
    """Return the wanted files that are the end of no name."""
    return [want for want in wanted if not any(name == want or name.endswith(f"/{want}") for name in names)]


def main(wheel: str, sdist: str) -> int:
    """Print the files that a distribution lacks."""
    faults = [f"{wheel} lacks {name}" for name in missing(zipfile.ZipFile(wheel).namelist(), IN_WHEEL)]
    with tarfile.open(sdist) as archive:
        faults += [f"{sdist} lacks {name}" for name in missing(archive.getnames(), IN_SDIST)]
    if any(name.startswith("tests/") for name in zipfile.ZipFile(wheel).namelist()):
        faults.append(f"{wheel} installs the tests")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
