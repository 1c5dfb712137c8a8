"""cluster_bus/handshake.py: both ends prove their identity before any other frame is read."""

from __future__ import annotations

import pytest

from cluster_bus.codec import PROTOCOL_MAX, Decoder, FrameError, Run, encode_run, frame
from cluster_bus.handshake import ACCEPTOR, DIALER, Handshake, Hello, hello_map, read_hello
from cluster_bus.messages import HELLO, PROOF

A = Hello(b"a" * 20, b"run-a---", "", 7711, 17711, "0.1")
B = Hello(b"b" * 20, b"run-b---", "10.0.0.2", 7712, 17712)


def runs_of(data: bytes) -> list[Run]:
    (runs,) = Decoder(4096, (0, 0)).feed(data)
    return runs


def ends(secret_a: bytes = b"", secret_b: bytes = b"") -> tuple[Handshake, Handshake]:
    return Handshake(DIALER, A, b"n" * 16, secret_a), Handshake(ACCEPTOR, B, b"m" * 16, secret_b)


def shake(dialer: Handshake, acceptor: Handshake) -> None:
    proof_a = dialer.receive(runs_of(acceptor.first_frame()))
    proof_b = acceptor.receive(runs_of(dialer.first_frame()))
    acceptor.receive(runs_of(proof_a))
    dialer.receive(runs_of(proof_b))


@pytest.mark.parametrize("secret", [b"", b"s3cret"])
def test_two_nodes_with_the_same_secret_or_none_complete_the_handshake(secret: bytes):
    """Spec S1."""
    dialer, acceptor = ends(secret, secret)
    shake(dialer, acceptor)
    assert dialer.is_done
    assert acceptor.is_done
    assert (dialer.peer, acceptor.peer) == (B, A)
    assert dialer.version == PROTOCOL_MAX


@pytest.mark.parametrize(
    ("mine", "theirs", "why"),
    [
        (b"one", b"two", "differs"),
        (b"one", b"", "the node has no cluster-secret"),
        (b"", b"two", "this one has none"),
    ],
)
def test_another_secret_or_one_on_one_side_only_is_refused_with_the_reason(mine: bytes, theirs: bytes, why: str):
    dialer, acceptor = ends(mine, theirs)
    dialer.receive(runs_of(acceptor.first_frame()))
    proof = runs_of(acceptor.receive(runs_of(dialer.first_frame())))
    with pytest.raises(FrameError, match=why) as caught:
        dialer.receive(proof)
    assert caught.value.reason == "wrong secret"
    assert not dialer.is_done


def test_a_proof_sent_back_to_its_author_is_refused():
    """The proof includes the role. Otherwise a peer without the secret could send a node's own proof back to it."""
    dialer, acceptor = ends(b"s", b"s")
    proof = acceptor.receive(runs_of(dialer.first_frame()))
    with pytest.raises(FrameError, match="wrong secret"):
        acceptor.receive(runs_of(proof))


def test_a_proof_of_an_earlier_link_is_refused():
    dialer, acceptor = ends(b"s", b"s")
    acceptor.receive(runs_of(dialer.first_frame()))
    old_proof = dialer.receive(runs_of(acceptor.first_frame()))
    later = Handshake(ACCEPTOR, B, b"o" * 16, b"s")
    later.receive(runs_of(dialer.first_frame()))
    with pytest.raises(FrameError, match="wrong secret"):
        later.receive(runs_of(old_proof))


def test_our_own_nonce_coming_back_is_refused():
    dialer, _ = ends(b"s")
    with pytest.raises(FrameError, match="our own nonce"):
        dialer.receive(runs_of(dialer.first_frame()))


@pytest.mark.parametrize(
    "runs", [[], [[HELLO]], [[PROOF, b""]], [[HELLO, {}], [HELLO, {}]], [[HELLO, 7]], [[3, {}, []]]]
)
def test_anything_but_hello_comes_too_early(runs: list[Run]):
    with pytest.raises(FrameError):
        ends()[0].receive(runs)


def test_a_proof_that_is_not_bytes_is_refused():
    dialer, acceptor = ends()
    dialer.receive(runs_of(acceptor.first_frame()))
    with pytest.raises(FrameError, match="not bytes"):
        dialer.receive([[PROOF, None]])


def test_versions_out_of_reach_are_refused():
    dialer = ends()[0]
    stranger = hello_map(B._replace(versions=(PROTOCOL_MAX + 1, PROTOCOL_MAX + 2)), b"m" * 16)
    with pytest.raises(FrameError, match="no common version"):
        dialer.receive([[HELLO, stranger]])


def test_a_hello_survives_the_wire_and_unknown_fields_are_ignored():
    item = hello_map(B, b"m" * 16) | {"datacenter": "east"}
    ((_, found),) = runs_of(frame(0, [encode_run(HELLO, [item])]))
    assert read_hello(found) == (B, b"m" * 16)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("v", 1),
        ("v", [1]),
        ("v", ["1", "2"]),
        ("id", b"short"),
        ("run", None),
        ("nonce", b""),
        ("host", b"bytes"),
        ("host", "two words"),
        ("host", "x" * 256),
        ("port", -1),
        ("bus_port", 65536),
        ("bus_port", True),
        ("version", 5),
        ("frame_max", "much"),
    ],
)
def test_a_field_of_the_wrong_type_makes_a_bad_hello(field: str, value: object):
    with pytest.raises(FrameError, match="bad hello"):
        read_hello(hello_map(A, b"n" * 16) | {field: value})
