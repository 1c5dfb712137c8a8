"""Loading the configuration and writing it back."""

from __future__ import annotations

import io
import os
import stat
import sys

import pytest

from disque_py.config.conf_file import ConfigError
from disque_py.config.rewriting import GENERATED
from disque_py.server.settings_file import load, replace_file, rewriting


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "disque.conf"
    path.write_text("port 7799\n")
    return str(path)


def test_a_file_and_options_behind_it(path):
    configuration = load([path, "--timeout", "5"])
    assert (configuration.path, configuration.settings.port, configuration.settings.timeout) == (path, 7799, 5)
    assert not configuration.is_default


def test_options_alone_and_nothing_at_all():
    assert load(["--port", "7798"]).settings.port == 7798
    assert load([]).is_default
    assert load([]).settings.dir == os.getcwd()


def test_a_dash_reads_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"# f\xfcr Latin-1\r\nport 7797\r\n"), "utf-8"))
    configuration = load(["-"])
    assert (configuration.settings.port, configuration.path) == (7797, "")


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load([str(tmp_path / "nix")])
    assert f"can't open config file '{tmp_path}/nix': No such file or directory" in caught.value.report()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["-p", "27711"], "--port 27711"),
        (["-port", "27711", "--dir", "."], "--port 27711"),
        (["-maxmemry", "1gb"], "--maxmemory 1gb"),
        (["-requirepass", "secret"], "--requirepass (hidden)"),
        (["-p"], "--port"),
    ],
)
def test_an_option_with_one_dash_suggests_the_directive(words, meant):
    with pytest.raises(ConfigError) as caught:
        load(words)
    assert f"can't open config file '{words[0]}'" in caught.value.report()
    assert f". Did you mean {meant}?" in caught.value.report()


def test_a_file_whose_name_begins_with_a_dash_is_named_without_a_suggestion():
    with pytest.raises(ConfigError) as caught:
        load(["-x.conf"])
    assert "Did you mean" not in caught.value.report()


def test_an_include_with_a_nul_byte_is_reported_like_other_wrong_lines(tmp_path):
    (tmp_path / "a.conf").write_text('include "a\\x00b"\n')
    with pytest.raises(ConfigError) as caught:
        load([str(tmp_path / "a.conf")])
    assert "at line 1" in caught.value.report()
    assert "embedded null byte" in caught.value.report()


def test_rewriting_replaces_the_file_in_one_step_and_keeps_its_permissions(path):
    os.chmod(path, 0o640)
    configuration = load([path])
    configuration.settings.timeout = 5
    rewriting(configuration)()
    with open(path) as file:
        assert file.read() == f"port 7799\n{GENERATED}\ntimeout 5\ndir {os.getcwd()}\n"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    assert os.listdir(os.path.dirname(path)) == ["disque.conf"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_rewrite_by_root_leaves_the_file_to_its_owner(path):
    """The next start may run as this user, and has to read the file."""
    os.chown(path, 12, 34)
    replace_file(path, "port 1\n")
    assert (os.stat(path).st_uid, os.stat(path).st_gid) == (12, 34)


def test_bytes_that_are_not_text_survive_a_rewrite(path):
    with open(path, "ab") as file:
        file.write(b"# \xff\n")
    rewriting(load([path]))()
    with open(path, "rb") as file:
        assert b"# \xff\n" in file.read()


def test_a_file_that_was_removed_is_written_anew(path):
    configuration = load([path])
    os.unlink(path)
    rewriting(configuration)()
    assert load([path]).settings.port == 7799
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600  # It may have passwords.


def test_a_link_in_place_of_the_new_file_does_not_redirect_a_rewrite(path, tmp_path):
    (tmp_path / "victim").write_text("kept")
    os.symlink(tmp_path / "victim", os.path.join(os.path.dirname(path), f".disque.conf.{os.getpid()}.new"))
    replace_file(path, "port 1\n")
    assert (tmp_path / "victim").read_text() == "kept"
    assert load([path]).settings.port == 1


def test_a_rewrite_writes_the_values_of_the_moment_of_the_command(path):
    """The settings may change while a thread waits for the disk."""
    configuration = load([path])
    deed = rewriting(configuration)
    configuration.settings.timeout = 9
    deed()
    assert load([path]).settings.timeout == 0


def test_a_link_to_the_file_stays_a_link(path, tmp_path):
    link = tmp_path / "link.conf"
    link.symlink_to(path)
    replace_file(str(link), "port 1\n")
    assert link.is_symlink()
    with open(path) as file:
        assert file.read() == "port 1\n"


def test_a_failed_rewrite_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").write_text("x")
    with pytest.raises(OSError, match="directory"):
        replace_file(str(tmp_path / "directory"), "port 1\n")
    assert os.listdir(tmp_path) == ["directory"]


def test_the_environment_is_read_between_the_file_and_the_options(path):
    environ = {"DISQUE_PORT": "7001", "DISQUE_TIMEOUT": "7", "DISQUE_SITE": "x", "HOME": "/"}
    configuration = load([path, "--timeout", "5"], environ)
    assert (configuration.settings.port, configuration.settings.timeout) == (7001, 5)
    assert configuration.ignored == ["DISQUE_SITE"]
    assert load([], {"DISQUE_SITE": "x"}).is_default
    assert not load([], environ).is_default
