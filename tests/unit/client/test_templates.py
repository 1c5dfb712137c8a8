"""Cheap encoding of many ADDJOBs."""

from __future__ import annotations

import pytest

from disque_py.client.commands import add_job, add_options
from disque_py.client.errors import BatchError, from_reply
from disque_py.client.protocol import encode
from disque_py.client.request import Repeat
from disque_py.client.templates import SLAB, AddTemplate, add_jobs, slabs, template_of


def template(**options):
    return AddTemplate("q", timeout_ms=100, options=add_options(**options), retry_unsafe=None)


@pytest.mark.parametrize("body", [b"", b"x" * 1000, "ü", bytearray(b"b")])
def test_a_template_makes_the_same_bytes_as_the_command(body):
    """The template is only cheaper."""
    options = {"replicate": 1, "retry": 5, "async_": True}
    assert template(**options).payload(body) == add_job("q", body, timeout_ms=100, **options).payload()


def test_a_template_makes_the_same_request_as_the_command():
    """A request can be traced and repeated like any other."""
    made = template_of("q", replicate=2, retry=5).one(b"body", (b"META", b"n", b"1"))
    assert made == add_job("q", b"body", replicate=2, retry=5, meta={"n": "1"})
    assert template_of("q").one(b"body") == add_job("q", b"body")


@pytest.mark.parametrize("more", [(), (b"KEY", b"k"), (b"META", b"n", b"\xff")])
def test_a_request_of_a_template_has_the_bytes_of_its_words(more):
    """They are made from prepared parts, which takes less time."""
    made = template_of("q", replicate=2, retry=5).one(b"body", more)
    assert made.payload() == made.encoded == encode(made.argv)


def test_ids_come_in_the_order_of_the_bodies():
    """Ids are text."""
    assert template().ids([b"D-1", b"D-2"]) == ["D-1", "D-2"]


def test_one_failure_raises_and_the_other_ids_are_not_lost():
    """BatchError has a result for each body."""
    failure = from_reply("MAXLEN full")
    with pytest.raises(BatchError) as caught:
        template().ids([b"D-1", failure])
    assert caught.value.results == ["D-1", failure]


def test_bodies_are_taken_in_parts():
    """A generator of millions of bodies must not be held in memory."""
    assert [len(part) for part in slabs(b"x" for _ in range(SLAB + 1))] == [SLAB, 1]
    assert list(slabs([])) == []
    assert [len(part) for part in slabs(bytes(1 << 20) for _ in range(40))] == [16, 16, 8]


def adding(bodies, **options):
    return [
        payload for bulk in add_jobs("q", bodies, **options).bulks(retry_unsafe=False) for payload, _ in bulk.chunks()
    ]


def test_options_of_one_body_follow_those_of_all():
    """Each body has a key, pairs and a priority. The bytes are those of single commands."""
    (payload,) = adding([b"a", b"b"], retry=5, priority=int.from_bytes, meta=lambda body: {"n": body}, key=[b"1", b"2"])
    same = [
        add_job("q", body, retry=5, priority=body[0], meta={"n": body}, key=key)
        for body, key in ((b"a", b"1"), (b"b", b"2"))
    ]
    assert payload == b"".join(each.payload() for each in same)


def test_jobs_with_keys_may_be_sent_again():
    """The reply to the second attempt has the same ids, so bulk adding is idempotent."""
    assert add_jobs("q", [], key=lambda body: body).template.request.repeat is Repeat.SAFE
    assert add_jobs("q", []).template.request.repeat is Repeat.ASK


def test_one_key_for_all_bodies_is_an_error():
    """All bodies would become one job. Each body needs its own key."""
    with pytest.raises(TypeError, match="one key makes one job"):
        add_jobs("q", [b"a"], key="k")


@pytest.mark.parametrize("of", [list, iter])
@pytest.mark.parametrize("keys", [[b"1"], [b"1", b"2", b"3"]])
def test_there_are_as_many_keys_as_bodies(of, keys):
    """A wrong number is found before any job is sent. Otherwise a job could get the key of another body."""
    with pytest.raises(ValueError, match="as many keys as bodies"):
        add_jobs("q", of([b"a", b"b"]), key=of(keys))


def test_keys_may_come_one_by_one():
    """Bodies may come from an iterator too."""
    (payload,) = adding(iter([b"a", b"b"]), key=iter([b"1", b"2"]))
    assert payload == add_job("q", b"a", key=b"1").payload() + add_job("q", b"b", key=b"2").payload()
