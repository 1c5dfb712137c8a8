"""The log: its lines, its levels, and log rotation."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import threading
from datetime import datetime

import pytest

from disque_py.config.settings import Settings
from disque_py.log_lines import line
from disque_py.server import log

LINE = re.compile(r"(\d+):P \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d\.\d{3} [+-]\d{4} ([.*#-]) (.*)")


@pytest.fixture(autouse=True)
def root_logger():
    """Restores the logging of the test run afterwards."""
    root = logging.getLogger()
    handlers, level, raises = list(root.handlers), root.level, logging.raiseExceptions
    root.handlers = []
    yield root
    for handler in root.handlers:
        handler.close()
    root.handlers, logging.raiseExceptions = handlers, raises
    root.setLevel(level)


@pytest.fixture
def settings(tmp_path):
    settings = Settings()
    settings.logfile = str(tmp_path / "disque.log")
    return settings


def lines(settings):
    with open(settings.logfile, encoding="utf-8") as file:
        return file.read().splitlines()


def test_a_line_has_pid_moment_level_and_text(settings):
    """Spec D6."""
    settings.loglevel = "debug"
    log.open_log(settings)
    for level in log.LEVELS:
        log.log(level, f"a {level} %s")
    found = [LINE.fullmatch(line).groups() for line in lines(settings)]
    assert found == [
        (str(os.getpid()), character, f"a {level} %s") for character, level in zip(".-*#", log.LEVELS, strict=True)
    ]


def test_lines_below_the_level_are_left_out_and_the_level_can_change(settings):
    log.open_log(settings)
    log.log("verbose", "hidden")
    log.set_level("verbose")
    log.log("verbose", "shown")
    assert [line[-5:] for line in lines(settings)] == ["shown"]


def test_long_texts_are_cut_at_1024_bytes(settings):
    log.open_log(settings)
    log.log("notice", "é" * 1000)
    assert LINE.fullmatch(lines(settings)[0]).group(3) == "é" * 512


def test_a_file_that_was_moved_away_is_opened_anew(settings):
    log.open_log(settings)
    log.log("notice", "one")
    os.rename(settings.logfile, settings.logfile + ".1")
    log.log("notice", "two")
    assert lines(settings)[0].endswith("two")


def test_when_the_log_cannot_be_written_only_lines_are_lost(settings, tmp_path):
    settings.logfile = str(tmp_path / "sub" / "disque.log")
    os.mkdir(tmp_path / "sub")
    log.open_log(settings)
    os.unlink(settings.logfile)
    os.rmdir(tmp_path / "sub")
    log.log("notice", "lost")
    assert not os.path.exists(settings.logfile)


def test_a_file_that_cannot_be_opened_is_an_error_at_start(settings, tmp_path):
    settings.logfile = str(tmp_path)
    with pytest.raises(OSError, match="Is a directory"):
        log.open_log(settings)


def test_without_a_file_lines_go_to_standard_output(capsys):
    log.open_log(Settings())
    log.log("warning", "here")
    assert capsys.readouterr().out.endswith(" # here\n")


def test_log_lines_of_libraries_are_logged_with_their_traceback(settings):
    log.open_log(settings)
    try:
        raise LookupError("lost")
    except LookupError:
        logging.getLogger("asyncio").exception("Exception in callback")
    found = lines(settings)
    assert found[0].endswith("# Exception in callback")
    assert found[-1] == "LookupError: lost"


def test_a_mistake_is_logged_with_its_whole_traceback(settings):
    log.open_log(settings)
    log.log_mistake(ValueError("odd" * 1000), consequence="the node stops", context="100% ours")
    assert lines(settings)[0].endswith("# a mistake in the program, the node stops: 100% ours")
    assert lines(settings)[-1] == "ValueError: " + "odd" * 1000


def test_a_line_of_json_has_the_name_of_the_message_and_its_fields(settings):
    settings.log_format = "json"
    log.open_log(settings)
    log.tell("memory-refused", count=3, used=20, maxmemory=10)
    logging.getLogger("asyncio").warning("100%% %s", "theirs")
    ours, theirs = map(json.loads, lines(settings))
    assert (ours["message"], ours["level"], ours["pid"]) == ("memory-refused", "warning", os.getpid())
    assert ours["fields"] == {"count": 3, "used": 20, "maxmemory": 10}
    assert ours["text"] == "commands refused for memory: 3; 20 of 10 bytes are used"
    assert (theirs["message"], theirs["text"], theirs["fields"]) == ("other", "100% theirs", {})
    assert datetime.fromisoformat(ours["time"]).utcoffset() is not None


def test_the_format_can_change_and_a_traceback_is_a_value(settings):
    log.open_log(settings)
    log.set_format("json")
    log.log_mistake(ValueError("odd"), consequence="the node stops", context="here")
    assert json.loads(lines(settings)[0])["traceback"].endswith("ValueError: odd")


def test_a_line_of_the_table_has_its_own_level(settings):
    log.open_log(settings)
    log.write(line("journal-refused", reason="full"))
    log.tell("link-up", node="n", address="a", bus_port=1)
    assert [LINE.fullmatch(each).group(2) for each in lines(settings)] == ["#"]


def test_a_name_that_a_client_chose_begins_no_line_of_its_own(settings):
    log.open_log(settings)
    log.tell("debug-failed", command="x\n1:P * all is well", reason="")
    assert len(lines(settings)) == 1


def test_a_flood_is_cut_short_and_counted(settings, monkeypatch):
    monkeypatch.setattr(log, "_LIMITER", log.Limiter())
    now_s = [100.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now_s[0])
    log.open_log(settings)
    for _ in range(log.LINES_MAX + 7):
        log.tell("leaving-began")
    log.tell("leaving-ended")
    log.flush()
    assert len(lines(settings)) == log.LINES_MAX + 1
    now_s[0] += log.SPAN_SECONDS
    log.flush()
    log.flush()
    assert "# further lines of 'leaving-began' left out in 10 s: 7" in lines(settings)[-1]
    log.tell("leaving-began")
    assert len(lines(settings)) == log.LINES_MAX + 3


def test_syslog_gets_the_text_alone_and_its_own_names_of_levels():
    record = logging.LogRecord("disque", log.VERBOSE, "", 0, "text %d", (7,), sys.exc_info())
    assert log.TextFormatter().format(record) == "text 7"
    assert log.Syslog.priority_map["VERBOSE"] == "info"


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\x9b2Jb", "a\u2028b", "a\x85b"])
def test_a_name_that_a_client_chose_controls_no_terminal(settings, name):
    log.open_log(settings)
    log.write(line("schedule-failed", schedule=name, tick_ms=1, reason="full"))
    [found] = lines(settings)
    assert found.isprintable()
    assert f"schedule {ascii(name)[1:-1]}: " in found


def ends(deed):
    """Return whether `deed` ends soon."""
    thread = threading.Thread(target=deed, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def test_a_reader_of_standard_output_that_stalls_costs_lines_and_not_the_server(monkeypatch):
    read_fd, write_fd = os.pipe()
    with open(write_fd, "w") as output, open(read_fd, "rb") as reader:
        monkeypatch.setattr(sys, "stdout", output)
        log.open_log(Settings())
        has_ended = ends(lambda: [log.log("notice", f"{number} {'x' * 1000}") for number in range(200)])
        first = os.read(read_fd, 1 << 20)
        assert has_ended
        assert first.count(b"\n") == first.count(b"x\n") > 30  # Whole lines.
        logging.getLogger("asyncio").warning("%d", "no number")
        log.log("notice", "after")
        assert reader.readline().endswith(b" after\n")


def test_a_syslog_daemon_that_stalls_costs_lines_and_not_the_server(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(tmp_path / "log"))
        handler = log.Syslog(str(tmp_path / "log"), "local0")
        record = logging.LogRecord("disque", logging.INFO, "", 0, "%s", ("x" * 1000,), None)
        assert ends(lambda: [handler.handle(record) for _ in range(2000)])
        assert b"xxx" in daemon.recv(2000, socket.MSG_DONTWAIT)
        handler.close()
