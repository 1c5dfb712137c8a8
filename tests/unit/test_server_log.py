"""The log: its lines, its levels, and files that are moved away."""

from __future__ import annotations

import logging
import os
import re
import sys

import pytest

from disque_py.config.settings import Settings
from disque_py.server import log

LINE = re.compile(r"(\d+):P \d\d [A-Z][a-z]{2} \d\d:\d\d:\d\d\.\d{3} ([.*#-]) (.*)")


@pytest.fixture(autouse=True)
def root_logger():
    """The logging of the test run itself comes back afterwards."""
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


def test_a_log_that_can_no_longer_be_written_costs_lines_only(settings, tmp_path):
    settings.logfile = str(tmp_path / "sub" / "disque.log")
    os.mkdir(tmp_path / "sub")
    log.open_log(settings)
    os.unlink(settings.logfile)
    os.rmdir(tmp_path / "sub")
    log.log("notice", "lost")
    assert not os.path.exists(settings.logfile)


def test_a_file_that_can_not_be_opened_is_an_error_at_start(settings, tmp_path):
    settings.logfile = str(tmp_path)
    with pytest.raises(OSError, match="Is a directory"):
        log.open_log(settings)


def test_without_a_file_lines_go_to_standard_output(capsys):
    log.open_log(Settings())
    log.log("warning", "here")
    assert capsys.readouterr().out.endswith(" # here\n")


def test_what_libraries_log_comes_too_with_its_traceback(settings):
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
    log.log_mistake("100% ours", ValueError("odd" * 1000))
    assert lines(settings)[0].endswith("# 100% ours")
    assert lines(settings)[-1] == "ValueError: " + "odd" * 1000


def test_syslog_gets_the_text_alone_and_its_own_names_of_levels():
    record = logging.LogRecord("disque", log.VERBOSE, "", 0, "text %d", (7,), sys.exc_info())
    assert log.TextFormatter().format(record) == "text 7"
    assert log.Syslog.priority_map["VERBOSE"] == "info"
