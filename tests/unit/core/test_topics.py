"""core/topics.py: the table that ADDJOB looks at. Commands are in unit/commands/test_topics.py."""

from __future__ import annotations

import pytest

from brokers import make_broker
from disque_py.core import topics
from disque_py.core.queue_settings import TOPIC, split_key, state_key
from disque_py.core.topics import binding_key, filter_value, queues_for


@pytest.mark.parametrize(("topic", "queue"), [(b"t", b"q"), (b"", b""), (b"\0\1\2", b"x" * 300), (b"ab", b"c")])
def test_a_binding_has_a_state_of_its_own(topic, queue):
    """Spec TP7."""
    broker = make_broker()
    topics.watch(broker)
    broker.queue_settings.merge((binding_key(topic, queue), topics.WHERE, filter_value({b"a": b""}), 1, broker.me.id))
    assert broker.topics == {topic: {queue: {b"a": b""}}}
    broker.queue_settings.merge((binding_key(topic, queue), b"", b"", 2, broker.me.id))
    assert broker.topics == {}


def test_names_that_share_their_bytes_are_different_bindings():
    assert binding_key(b"ab", b"c") != binding_key(b"a", b"bc")
    assert split_key(binding_key(b"a", b"b"))[0] == TOPIC


def test_a_key_of_another_version_is_ignored():
    broker = make_broker()
    topics.watch(broker)
    broker.queue_settings.merge((state_key(TOPIC, b"later"), topics.WHERE, b"1", 1, broker.me.id))
    assert broker.topics == {}


def test_filters_choose_the_queues():
    bound = {b"b": {}, b"a": {b"x": b"1"}, b"c": {b"x": b"1", b"y": b"2"}}
    assert queues_for(bound, {b"x": b"1"}) == [b"a", b"b"]
    assert queues_for(bound, {}) == [b"b"]
