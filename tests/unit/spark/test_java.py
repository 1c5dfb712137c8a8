"""java.py: find a Java that Spark can use, or say what to install."""

from __future__ import annotations

import os
import subprocess

import pytest

from disque_py.spark import java
from disque_py.spark.java import NoJavaError, ensure_java, is_suitable, write_shim


def fake_java(folder, version: str, *modules: str):
    """A launcher that answers like a Java, and otherwise prints its arguments."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    lines = "\\n".join(f"{module}@{version}" for module in modules)
    path.write_text(
        f'#!/bin/sh\ncase "$1" in\n-version) echo \'openjdk version "{version}"\' >&2;;\n'
        f"--list-modules) printf '{lines}\\n';;\n*) printf '%s\\n' \"$@\";;\nesac\n"
    )
    path.chmod(0o755)
    return path


def test_a_java_that_is_new_enough_and_has_the_module_is_used_unchanged(tmp_path):
    fake_java(tmp_path, "17.0.1", "java.base", "jdk.incubator.vector")
    environment = {"JAVA_HOME": str(tmp_path), "PATH": ""}
    assert ensure_java(environment, tmp_path) == str(tmp_path)


@pytest.mark.parametrize(
    ("version", "modules"), [("11.0.2", ["jdk.incubator.vector"]), ("1.8.0_1", []), ("21", ["java.base"])]
)
def test_a_java_that_is_too_old_or_lacks_the_module_is_not_used(tmp_path, version, modules):
    assert not is_suitable(fake_java(tmp_path, version, *modules))


def test_the_java_on_the_path_becomes_java_home(tmp_path):
    fake_java(tmp_path, "21.0.1", "jdk.incubator.vector")
    environment = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}/bin"}
    assert ensure_java(environment, tmp_path) == str(tmp_path) == environment["JAVA_HOME"]


def test_the_launcher_of_the_wheel_drops_the_one_word_and_nothing_else(tmp_path):
    java_of_wheel = fake_java(tmp_path / "it's a wheel", "21.0.1", "java.base")
    home = write_shim(java_of_wheel, tmp_path / "cache")
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "$x"]
    said = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Xmx1g", "a b", "$x"]
    assert is_suitable(home / "bin" / "java")


def test_without_any_java_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "wheel_java", lambda: None)
    with pytest.raises(NoJavaError, match=r"pip install 'disque-py\[spark\]'"):
        ensure_java({"PATH": str(tmp_path)}, tmp_path)


def test_the_wheel_is_used_when_there_is_no_other_java(tmp_path, monkeypatch):
    wheel = fake_java(tmp_path / "wheel", "21.0.1", "java.base")
    monkeypatch.setattr(java, "wheel_java", lambda: wheel)
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    home = ensure_java(environment)
    assert home == str(tmp_path / ".cache" / "disque-py" / "java-home")
    assert ensure_java(environment) == home
