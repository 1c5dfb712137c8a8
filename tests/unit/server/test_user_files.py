"""The ACL file and the audit log on disk."""

from __future__ import annotations

import os
import stat

import pytest

from disque_py.config.settings import Settings
from disque_py.server.user_files import AuditLog, read_acl_file, write_acl_file


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_user_of_the_node_can_read_the_acl_file(tmp_path):
    """Spec US7."""
    path = tmp_path / "users.acl"
    path.write_text("user old\n")
    path.chmod(0o644)
    write_acl_file(str(path), b"user ann on\n")
    assert read_acl_file(str(path)) == b"user ann on\n"
    assert mode_of(path) == 0o600
    assert os.listdir(tmp_path) == ["users.acl"]


def test_a_file_behind_a_link_is_replaced_and_not_the_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "users.acl").symlink_to(tmp_path / "real" / "users.acl")
    write_acl_file(str(tmp_path / "users.acl"), b"user ann on\n")
    assert (tmp_path / "real" / "users.acl").read_bytes() == b"user ann on\n"
    assert (tmp_path / "users.acl").is_symlink()


def test_a_link_that_a_crash_left_is_not_followed(tmp_path):
    """A symbolic link in place of the new file must not redirect the write to another file."""
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "users.acl.new").symlink_to(tmp_path / "victim")
    write_acl_file(str(tmp_path / "users.acl"), b"user ann on\n")
    assert (tmp_path / "victim").read_text() == "kept"


def test_a_full_disk_leaves_the_old_acl_file_and_no_part_of_a_new_one(tmp_path, monkeypatch):
    path = tmp_path / "users.acl"
    write_acl_file(str(path), b"user ann on\n")

    def fail(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_acl_file(str(path), b"user bob on\n")
    assert os.listdir(tmp_path) == ["users.acl"]
    assert read_acl_file(str(path)) == b"user ann on\n"


def test_there_is_no_acl_file_at_the_first_start(tmp_path):
    assert read_acl_file(str(tmp_path / "none")) == b""
    with pytest.raises(FileNotFoundError):
        write_acl_file(str(tmp_path / "none" / "users.acl"), b"")


def settings_with(audit_log):
    settings = Settings()
    settings.audit_log = audit_log
    return settings


def test_lines_are_added_to_the_audit_log(tmp_path):
    """Spec US10."""
    path = tmp_path / "audit.log"
    path.write_text("earlier\n")
    path.chmod(0o600)
    log = AuditLog(settings_with(str(path)))
    log.write("x" * 5_000)
    path.rename(tmp_path / "audit.log.1")
    log.write("{}")
    log.close()
    assert (tmp_path / "audit.log.1").read_text() == "earlier\n" + "x" * 5_000 + "\n"
    assert path.read_text() == "{}\n"
    assert mode_of(path) == 0o600


def test_without_a_name_there_is_no_audit_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = AuditLog(settings_with(""))
    log.write("{}")
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_an_audit_log_that_cannot_be_opened_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        AuditLog(settings_with(str(tmp_path / "none" / "audit.log")))
