"""docs/examples: they fit the project and the pages that tell of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from check_wheel import IN_WHEEL, missing
from disque_py.server.settings_file import load

BUILD = "import sys, setuptools.build_meta as backend; print(backend.build_wheel(sys.argv[1]))"


@pytest.fixture
def dockerfile(root):
    """Its text."""
    return (root / "docs/examples/Dockerfile").read_text(encoding="utf-8")


def copied(dockerfile, root, folder):
    """A folder with what the Dockerfile copies out of the checkout."""
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
        for source in sources.split():
            if (root / source).is_dir():
                shutil.copytree(root / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / source, folder)
    return folder


def test_the_image_has_all_that_the_build_needs(dockerfile, root, tmp_path):
    """setup.py among it, without which the build succeeds and is the slow one."""
    source = tmp_path / "source"
    source.mkdir()
    copied(dockerfile, root, source)
    assert (source / "setup.py").exists()
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)],
        cwd=source,
        env={**os.environ, "DISQUE_PY_COMPILE": "no"},
        capture_output=True,
        text=True,
        check=True,
    )
    names = zipfile.ZipFile(tmp_path / built.stdout.split()[-1]).namelist()
    assert missing(names, IN_WHEEL) == []
    modules = [path.relative_to(root).as_posix() for path in root.glob("disque_py/**/*.py")]
    assert [name for name in modules if name not in names] == []


def test_the_image_is_the_compiled_build_or_none(dockerfile):
    assert "DISQUE_PY_COMPILE=yes pip wheel" in dockerfile
    assert "disque-server --version | grep build=compiled" in dockerfile


def test_the_nodes_of_the_examples_are_opened_on_purpose(dockerfile, root):
    """protected-mode refuses whatever comes from outside a container."""
    assert "DISQUE_BIND: 0.0.0.0" in (root / "docs/examples/compose.yaml").read_text(encoding="utf-8")
    assert "-e DISQUE_REQUIREPASS=" in dockerfile


def test_the_unit_starts_what_the_guide_installs(root, tmp_path):
    unit = (root / "docs/examples/disque-server.service").read_text(encoding="utf-8")
    guide = (root / "docs/operations.md").read_text(encoding="utf-8")
    commands = re.findall(r"^ExecStart(?:Pre)?=(\S+) (.+)$", unit, re.MULTILINE)
    assert {path for path, _ in commands} == set(re.findall(r"^\$ (/\S+/disque-server)", guide, re.MULTILINE))
    words = commands[-1][1].replace("/var/lib/disque", str(tmp_path)).split()
    (tmp_path / "disque.conf").touch()
    assert load([str(tmp_path / "disque.conf"), *words[1:]], {}).settings.supervised == "systemd"
