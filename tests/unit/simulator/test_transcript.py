"""Messages, replies and ids in transcripts."""

from __future__ import annotations

from cluster_bus import messages
from cluster_bus.codec import encode_run, frame
from disque_py.simulator.transcript import Ids, Names, letter, nodes, tell_bytes, tell_frame, tell_message, tell_reply

JOB = b"D-61000000-0000000000000000000000AB-05a1"
SET = b"a" * 20 + b"b" + b"x" * 19


def test_ids_have_short_names():
    """In simulations it is the part that differs, in scenarios j1, j2 …"""
    names = Names()
    assert Ids().of(JOB) == "00000000"
    assert (names.of(JOB), names.id_of("j1")) == ("j1", JOB)
    assert names.in_text(f"job {JOB.decode()}") == "job j1"


def test_nodes_are_letters():
    """A node with a random id is shown by the beginning of its id."""
    assert nodes(SET) == "{a b}"
    assert letter(b"\x01\x02" + b"x" * 18) == "0102"


def test_a_frame_is_described_message_by_message():
    """Heartbeats are shown only by their name."""
    data = frame(1, [encode_run(messages.PING, [[{}, []]]), encode_run(messages.SETACK, [(JOB, SET)])])
    assert tell_frame(Ids(), data, 1) == ["PING", "SETACK 00000000 {a b}"]


def test_refusals_are_described_by_their_reason():
    """Each reason has a word."""
    assert tell_message(Ids(), messages.REFUSED, (JOB, messages.REFUSED_PAUSED)) == "00000000 paused"
    assert tell_message(Ids(), messages.TOOK, (3, bytes([0, messages.REFUSED_BUSY]))) == "#3 taken busy"


def test_a_key_of_a_claim_need_not_be_text():
    """The holder of a delivery begins with a node id."""
    told = tell_message(Ids(), messages.CLAIM, [1, 1, b"Vq", b"\xa6node", 7, 1_000, 1, 0, 0])
    assert told == "Vq \\xa6node fence 7 for 1000ms"


def test_replies_are_described_as_a_client_sees_them():
    """There are numbers, nil, errors and lists. Long or unreadable bytes are shown by their beginning."""
    assert tell_reply(Ids(), [1, None, JOB, b"x", ValueError("ERR no")]) == "[:1, nil, 00000000, x, -ERR no]"
    assert tell_bytes(Ids(), b"") == '""'
    assert tell_bytes(Ids(), b"1 \x00\xff" + b"y" * 500) == "1 .\\xffyyyyyyyyyyyyy… 504 bytes"
