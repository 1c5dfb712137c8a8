"""disque_py/server/start_error.py: each error that prevents a start names the next step."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from disque_py.server.start_error import ADVICE, CLIENT_PORT, refused


def test_the_error_has_the_failure_the_reason_and_the_next_step():
    error = FileNotFoundError(errno.ENOENT, "No such file or directory")
    assert str(refused("can't open the log x", error, "logfile")) == (
        "can't open the log x: No such file or directory. Create the missing directory or file, or change logfile"
    )


@pytest.mark.parametrize("number", ADVICE)
def test_each_advice_names_the_directive_to_change(number):
    assert str(refused("can't", OSError(number, "why"), "the-directive")).endswith("change the-directive")


def test_an_access_error_names_the_user_of_the_process():
    assert f"user {os.geteuid()}" in str(refused("can't", PermissionError(errno.EACCES, "why"), "dir"))


def test_a_low_port_needs_a_capability_and_not_access_to_a_file():
    words = str(refused("can't", PermissionError(errno.EACCES, "why"), "port", is_port=True))
    assert "CAP_NET_BIND_SERVICE" in words


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")])
def test_a_name_that_cannot_be_resolved_is_corrected_in_the_directive(error):
    assert str(refused("can't", error, "bind")).endswith(
        "Correct the name in bind, or the name service of this machine"
    )


def test_an_error_without_advice_still_names_the_directive():
    assert str(refused("can't", OSError("AF_UNIX path too long"), "unixsocket")) == (
        "can't: AF_UNIX path too long. Check unixsocket"
    )


def test_a_step_of_the_start_has_one_text_for_each_name():
    error = CLIENT_PORT.refused("10.0.0.1:77", PermissionError(errno.EACCES, "Permission denied"))
    assert str(error).startswith("can't accept clients on 10.0.0.1:77: Permission denied. Ports below 1024 need")
