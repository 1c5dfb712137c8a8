"""Topics: names whose jobs go to other queues. A name is a topic while at least one queue is bound to it.

Each binding is a state of its own beside the settings of queues (queue_settings.py), so nodes that bind and unbind at
the same time disturb each other only where they mean the same queue. The key of the state has topic and queue, and its
one field the filter. This module turns states into the table that ADDJOB looks at. A node without topics has an empty
table, and ADDJOB looks no further. The jobs are made by fanout.py. Spec TP7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_py.core.queue_settings import TOPIC, state_key

if TYPE_CHECKING:
    from disque_py.core.broker import Broker

TOPICS_MAX: Final = 10_000
QUEUES_MAX: Final = 1_000
# The one field of a binding. Its value is not empty: a mark, then the filter.
WHERE: Final = b"where"
MARK: Final = b"1"
LENGTH_BYTES: Final = 4

# The pairs that a job's META must have.
Pairs = dict[bytes, bytes]


def binding_key(topic: bytes, queue: bytes) -> bytes:
    """Return the key of the state of a binding."""
    return state_key(TOPIC, _packed((topic, queue)))


def filter_value(pairs: Pairs) -> bytes:
    """Return the value of the field of a binding with this filter."""
    return MARK + _packed(tuple([word for pair in pairs.items() for word in pair]))


def watch(broker: Broker) -> None:
    """Keep the table of topics in step with the states."""
    broker.queue_settings.watch(TOPIC, _watcher(broker.topics))


def _watcher(topics: dict[bytes, dict[bytes, Pairs]]) -> Callable[[bytes, dict[bytes, bytes]], None]:
    def changed(name: bytes, fields: dict[bytes, bytes]) -> None:
        words = _unpacked(name)
        if len(words) != 2:
            return  # A newer version makes such names.
        topic, queue = words
        value = fields.get(WHERE, b"")
        if value:
            pairs = _unpacked(value[len(MARK) :])
            topics.setdefault(topic, {})[queue] = dict(zip(pairs[::2], pairs[1::2], strict=False))
            return
        bound = topics.get(topic)
        if bound is not None:
            bound.pop(queue, None)
            if not bound:
                del topics[topic]

    return changed


def queues_for(bound: dict[bytes, Pairs], meta: Pairs) -> list[bytes]:
    """Return the bound queues whose filter takes a job with these pairs, sorted."""
    return sorted(
        [
            queue
            for queue, pairs in bound.items()
            if not pairs or all(meta.get(name) == value for name, value in pairs.items())
        ]
    )


def _packed(words: tuple[bytes, ...]) -> bytes:
    return b"".join([len(word).to_bytes(LENGTH_BYTES, "big") + word for word in words])


def _unpacked(data: bytes) -> list[bytes]:
    """Return the words of a packed value; what follows a wrong length is left out."""
    words: list[bytes] = []
    at = 0
    while at + LENGTH_BYTES <= len(data):
        length = int.from_bytes(data[at : at + LENGTH_BYTES], "big")
        at += LENGTH_BYTES
        if at + length > len(data):
            break
        words.append(data[at : at + length])
        at += length
    return words
