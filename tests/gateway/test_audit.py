"""The audit log."""

from __future__ import annotations

import json
from io import BytesIO

from disque_py.gateway.audit import Audit


def test_a_line_names_caller_operation_target_and_outcome(tmp_path):
    path = tmp_path / "audit.log"
    audit = Audit(str(path))
    audit.line(5.0, "token:t", "10.0.0.1", "http", "move", {"queue": "a\n", "to": "b", "body": "secret"}, "OK")
    audit.close()
    [line] = path.read_text().splitlines()
    found = json.loads(line)
    assert (found["principal"], found["operation"], found["queue"], found["to"]) == ("token:t", "move", "a\n", "b")
    assert "secret" not in line


def test_a_line_names_schedule_action_batch_and_dead_letters():
    audit = Audit(stream=BytesIO())
    words = {"name": "nightly", "action": "cancel", "batch": "b", "dead_letter": "d", "where": {"tenant": "secret"}}
    audit.line(5.0, "p", "", "http", "x", words, "OK")
    [line] = audit.newest
    assert {name: line.get(name) for name in words} == words | {"where": None}


def test_a_name_that_cannot_be_encoded_is_in_the_log():
    stream = BytesIO()
    Audit(stream=stream).line(5.0, "oidc:\ud800", "", "http", "purge_queue", {"queue": "\udcff"}, "OK")
    found = json.loads(stream.getvalue())
    assert (found["principal"], found["queue"]) == ("oidc:\ufffd", "\ufffd")


def test_a_full_disk_stops_nothing(tmp_path):
    audit = Audit(str(tmp_path / "audit.log"))
    audit.close()
    audit.line(5.0, "p", "", "http", "pause", {}, "OK")
    assert audit.newest[0]["operation"] == "pause"


def test_a_file_that_was_renamed_is_followed_by_a_new_one(tmp_path):
    path = tmp_path / "audit.log"
    audit = Audit(str(path))
    audit.line(5.0, "p", "", "http", "pause", {}, "OK")
    path.rename(tmp_path / "audit.log.1")
    audit.line(6.0, "p", "", "http", "resume", {}, "OK")
    audit.close()
    assert ["pause" in (tmp_path / "audit.log.1").read_text(), "resume" in path.read_text()] == [True, True]
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_log_says_once_that_lines_are_missing(tmp_path, caplog):
    folder = tmp_path / "logs"
    folder.mkdir()
    audit = Audit(str(folder / "audit.log"))
    folder.rename(tmp_path / "gone")
    with caplog.at_level("INFO"):
        for _ in range(2):
            audit.line(5.0, "p", "", "http", "pause", {}, "OK")
        folder.mkdir()
        audit.line(6.0, "p", "", "http", "resume", {}, "OK")
    audit.close()
    assert ["can't be written" in each.message for each in caplog.records] == [True, False]
    assert "resume" in (folder / "audit.log").read_text()
