"""commands/settings_changes.py: a change of settings as a command."""

from __future__ import annotations

import pytest

from brokers import error_of, host_of, make_broker, make_client
from disque_py.commands import settings_changes
from disque_py.commands.settings_changes import Texts
from disque_py.core import queue_settings, settings_sync
from disque_py.core.errors import CommandError
from disque_py.core.topics import WHERE, binding_key

TEXTS = Texts("ERR full", "ERR the highest version", "things")
VALUES = [(b"lease", b"5")]
COMMANDS = {
    "queue settings": ("QUEUE", "SET", "q", "lease", 9),
    "schedule": ("SCHEDULE", "SET", "s", "EVERY", "1m", "QUEUE", "q"),
    "topics": ("TOPIC", "BIND", "t", "q"),
}


def test_a_change_is_in_force_and_answered_when_it_is_saved():
    """Spec QS3."""
    broker = make_broker()
    assert settings_changes.change(broker, make_client(broker), b"q", VALUES, TEXTS, b":7\r\n") == b":7\r\n"
    assert host_of(broker).settings_file == [(b"q", b"lease", b"5", 1, broker.me.id)]


def test_the_highest_version_is_not_changed():
    """There is no higher version, so two values would have the same one. Spec QS1."""
    broker = make_broker()
    settings_sync.start(broker, [(b"q", b"lease", b"9", queue_settings.COUNTER_MAX, b"\x02" * 20)])
    with pytest.raises(CommandError, match="ERR the highest version"):
        settings_changes.change(broker, make_client(broker), b"q", VALUES, TEXTS)


def test_a_topic_of_the_highest_version_has_no_room():
    broker = make_broker()
    key = binding_key(b"t", b"q")
    settings_sync.start(broker, [(key, WHERE, b"", queue_settings.COUNTER_MAX, b"\x02" * 20)])
    assert error_of(broker, make_client(broker), *COMMANDS["topics"]) == "ERR no room for more bindings"


@pytest.mark.parametrize("subject", COMMANDS)
def test_a_file_that_cannot_be_written_is_an_error(subject):
    """Spec QS3."""
    broker = make_broker()
    host_of(broker).failures["write_queue_settings"] = OSError(28, "No space left on device")
    text = error_of(broker, make_client(broker), *COMMANDS[subject])
    assert text == f"ERR error saving the {subject}: No space left on device"
