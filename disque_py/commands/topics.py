"""TOPIC: bindings of topics to queues, on all nodes, and PUBLISH.

A change is answered like one of queue settings: when it is on disk and linked nodes had a second to confirm it. The
jobs of a topic are made by ADDJOB (adding.py). Spec TP7, TP8.
"""

from __future__ import annotations

from typing import Final

from disque_py.commands import adding, settings_changes
from disque_py.commands.subcommands import ANY, Form, run_form, syntax_error, text_of
from disque_py.commands.where import read_pair
from disque_py.core import incremental, memory, topics
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import OOM, CommandError
from disque_py.core.queue_settings import RESET_FIELD
from disque_py.core.topics import QUEUES_MAX, TOPICS_MAX, binding_key, filter_value
from disque_py.core.versions import FLOWS, refuse_older
from disque_py.resp.glob import Glob
from disque_py.resp.replies import OK, array, bulk, bulk_array, integer

NAME_BYTES_MAX: Final = 1_024
NO_TOPIC: Final = "ERR no such topic"
TOO_MANY_QUEUES: Final = f"ERR a topic has at most {QUEUES_MAX} queues"
TOO_MANY_TOPICS: Final = f"ERR too many topics, at most {TOPICS_MAX}"
FULL: Final = "ERR no room for more bindings"
TEXTS: Final = settings_changes.Texts(FULL, FULL, "topics")
NAME_ERROR: Final = f"ERR the name of a topic must have 1 to {NAME_BYTES_MAX} bytes"
# Topics that LIST compares with a pattern in one go.
TOPICS_PER_PART: Final = 200


def topic(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """TOPIC BIND topic queue [WHERE name value ...] | UNBIND topic queue | LIST [pattern] | PUBLISH topic body ms …."""
    return run_form(FORMS, broker, client, argv)


def _bind(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """BIND topic queue [WHERE name value ...]: an existing binding gets the new filter."""
    name, queue = argv[2], argv[3]
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise CommandError(NAME_ERROR)
    pairs: dict[bytes, bytes] = {}
    for at in range(4, len(argv), 3):
        if argv[at].lower() != b"where":
            raise syntax_error(argv[at])
        read_pair(pairs, argv, at)
    bound = broker.topics.get(name)
    if bound is None and len(broker.topics) >= TOPICS_MAX:
        raise CommandError(TOO_MANY_TOPICS)
    if bound is not None and queue not in bound and len(bound) >= QUEUES_MAX:
        raise CommandError(TOO_MANY_QUEUES)
    return _change(broker, client, name, queue, [(topics.WHERE, filter_value(pairs))], OK)


def _unbind(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """UNBIND topic queue: 1, or 0 if it was not bound."""
    if argv[3] not in broker.topics.get(argv[2], ()):
        return integer(0)
    return _change(broker, client, argv[2], argv[3], [(RESET_FIELD, b"")], integer(1))


def _change(
    broker: Broker, client: Client, name: bytes, queue: bytes, values: list[tuple[bytes, bytes]], reply: bytes
) -> bytes | None:
    refuse_older(broker, FLOWS)
    key = binding_key(name, queue)
    return settings_changes.change(broker, client, key, values, TEXTS, reply)


def _list(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """LIST [pattern]: topic, queue and filter of each binding, sorted."""
    if len(argv) == 3 and len(argv[2]) > NAME_BYTES_MAX:
        raise syntax_error(argv[2])
    pattern = Glob(text_of(argv[2])) if len(argv) == 3 else None
    return incremental.begin(broker, client, _listed(broker, client, sorted(broker.topics), pattern))


def _listed(broker: Broker, client: Client, names: list[bytes], pattern: Glob | None) -> incremental.Steps:
    """Show the bindings whose topic and queue the client's user may use. Spec US5."""
    entries: list[bytes] = []
    looked = 0
    user = client.user
    for name in names:
        if user is not None and not user.may_name(name):
            continue
        if pattern is not None and not pattern.matches(text_of(name)):
            continue
        bound = broker.topics.get(name, {})
        for queue in sorted(bound):
            if user is not None and not user.may_name(queue):
                continue
            pairs = [word for pair in bound[queue].items() for word in pair]
            entries.append(array([bulk(name), bulk(queue), bulk_array(pairs)]))
        looked += 1 + len(bound)
        if looked >= TOPICS_PER_PART:
            looked = 0
            yield
    return array(entries)


def _publish(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """PUBLISH topic body ms-timeout [options of ADDJOB]: queue and id of each job."""
    if argv[2] not in broker.topics:
        raise CommandError(NO_TOPIC)
    if broker.used_memory > broker.memory.limits[1] and memory.is_full(broker):
        broker.stats.memory_refusals += 1
        raise CommandError(OOM)
    return adding.publish(broker, client, [argv[0], *argv[2:]], is_listed=True)


FORMS: Final = {
    b"bind": Form(_bind, 4, ANY),
    b"unbind": Form(_unbind, 4, 4),
    b"list": Form(_list, 2, 3),
    b"publish": Form(_publish, 5, ANY),
}
