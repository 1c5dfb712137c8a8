"""The link handshake, which proves the id of the other end: HELLO, then PROOF, both ways.

Each end sends HELLO at once, and PROOF when the other's HELLO has come. The proof is an HMAC-SHA256 keyed with
`cluster-secret` over the prover's role, both nonces and both ids. So a proof can be neither replayed (nonces) nor sent
back to its author (role). Nothing else is read before both frames of the other end have been checked (spec S1).

Without a secret, proofs are empty. An end with a secret and one without refuse each other, and each reports the reason.

The proof shows that the other end knows the secret. It does not exclude an attacker in between, or one that listens:
TLS does.

Pure: link.py owns the connection and the time limit. Membership decides which nodes are *welcome*.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cluster_bus.codec import (
    FRAME_BYTES_MAX,
    HANDSHAKE_VERSION,
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    FrameError,
    Run,
    common_version,
    encode_run,
    frame,
)
from cluster_bus.messages import HELLO, PROOF
from cluster_bus.node import ID_BYTES

NONCE_BYTES: Final = 16
RUN_BYTES: Final = 8
HOST_CHARS_MAX: Final = 255
VERSION_CHARS_MAX: Final = 64
INCARNATION_MAX: Final = (1 << 62) - 1

# HELLO and PROOF have a few hundred bytes. A peer that declares more before it has proved anything is no node.
HANDSHAKE_BYTES_MAX: Final = 4096

DIALER: Final = b"dialer"
ACCEPTOR: Final = b"acceptor"
_LABEL: Final = b"disque bus 1\0"


class Hello(NamedTuple):
    """A node's introduction when a link opens.

    id, run         20 bytes; the 8 random bytes of its process
    host            announced address, "" if it should be taken from the socket
    port, bus_port  where clients and nodes reach it
    software        version of its software, for people
    versions        lowest and highest bus protocol version it speaks
    frame_bytes_max longest payload it will accept
    incarnation     its number (spec N10); -1: a node of an older release, which has none
    """

    id: bytes
    run: bytes
    host: str
    port: int
    bus_port: int
    software: str = ""
    versions: tuple[int, int] = (PROTOCOL_MIN, PROTOCOL_MAX)
    frame_bytes_max: int = FRAME_BYTES_MAX
    incarnation: int = 0


def is_port(value: Any) -> bool:
    """Return whether a received value is a TCP port, 0 (unknown) included."""
    return type(value) is int and 0 <= value <= 65535


def is_incarnation(value: Any) -> bool:
    """Return whether a received value may be a node's incarnation."""
    return type(value) is int and 0 <= value <= INCARNATION_MAX


def is_host(value: Any) -> bool:
    """Return whether a received value may be in the node table and, blank-separated, in the nodes file."""
    return (
        isinstance(value, str) and len(value) <= HOST_CHARS_MAX and value.isprintable() and not set(value) & set(" ,=")
    )


def hello_map(hello: Hello, nonce: bytes) -> dict[str, Any]:
    """Return HELLO's item."""
    return {
        "v": list(hello.versions),
        "id": hello.id,
        "run": hello.run,
        "nonce": nonce,
        "host": hello.host,
        "port": hello.port,
        "bus_port": hello.bus_port,
        "version": hello.software,
        "frame_max": hello.frame_bytes_max,
        "incarnation": hello.incarnation,
    }


def read_hello(item: Any) -> tuple[Hello, bytes]:
    """Read HELLO's item as Hello and nonce; FrameError. Unknown fields are a newer node's and are ignored."""
    if not isinstance(item, dict):
        raise FrameError("bad hello", "not a map")
    get: Callable[..., Any] = item.get
    versions, node_id, run, nonce = get("v"), get("id"), get("run"), get("nonce")
    host, port, bus_port = get("host"), get("port"), get("bus_port")
    software, frame_max = get("version", ""), get("frame_max", FRAME_BYTES_MAX)
    if not (
        isinstance(versions, list)
        and len(versions) >= 2
        and all(type(version) is int for version in versions[:2])
        and _is_bytes(node_id, ID_BYTES)
        and _is_bytes(run, RUN_BYTES)
        and _is_bytes(nonce, NONCE_BYTES)
        and is_host(host)
        and is_port(port)
        and is_port(bus_port)
        and isinstance(software, str)
        and type(frame_max) is int
    ):
        raise FrameError("bad hello", "a field is missing or of the wrong type")
    software = software[:VERSION_CHARS_MAX] if software.isprintable() else ""
    incarnation = get("incarnation", -1)
    if not is_incarnation(incarnation):
        incarnation = -1
    spoken = (versions[0], versions[1])
    return Hello(node_id, run, host, port, bus_port, software, spoken, frame_max, incarnation), nonce


def _is_bytes(value: Any, length: int) -> bool:
    return isinstance(value, bytes) and len(value) == length


class Handshake:
    """One end of one link's handshake: give it the first two runs received, send what it returns.

    role      DIALER or ACCEPTOR: which end we are
    peer      the other end's Hello once it has come
    version   protocol version for the frames after the handshake
    is_done   both frames of the other end were good
    """

    __slots__ = ("_hello", "_nonce", "_peer_nonce", "_secret", "is_done", "peer", "role", "version")

    def __init__(self, role: bytes, hello: Hello, nonce: bytes, secret: bytes) -> None:
        self.role = role
        self.peer: Hello | None = None
        self.version = 0
        self.is_done = False
        self._hello = hello
        self._nonce = nonce
        self._peer_nonce = b""
        self._secret = secret

    def first_frame(self) -> bytes:
        """Return HELLO, to be sent as soon as the connection is there."""
        return frame(HANDSHAKE_VERSION, [encode_run(HELLO, [hello_map(self._hello, self._nonce)])])

    def receive(self, runs: list[Run]) -> bytes:
        """Take the other end's next frame; return the frame to send now, perhaps b"". FrameError refuses the link."""
        if len(runs) != 1 or len(runs[0]) < 2 or runs[0][0] != (HELLO if self.peer is None else PROOF):
            raise FrameError("bad handshake", "HELLO and PROOF are due, one per frame")
        if self.peer is None:
            return self._on_hello(runs[0][1])
        self._on_proof(runs[0][1])
        return b""

    def _on_hello(self, item: Any) -> bytes:
        peer, nonce = read_hello(item)
        self.version = common_version(peer.versions)
        if not self.version:
            raise FrameError("no common version", f"the node speaks {peer.versions[0]} to {peer.versions[1]}")
        if nonce == self._nonce:
            raise FrameError("bad handshake", "our own nonce came back")
        self.peer, self._peer_nonce = peer, nonce
        return frame(HANDSHAKE_VERSION, [encode_run(PROOF, [self._proof(self.role)])])

    def _on_proof(self, proof: Any) -> None:
        if not isinstance(proof, bytes):
            raise FrameError("bad handshake", "the proof is not bytes")
        if not hmac.compare_digest(proof, self._proof(ACCEPTOR if self.role is DIALER else DIALER)):
            if not self._secret:
                raise FrameError("wrong secret", "the node has a cluster-secret, this one has none")
            if not proof:
                raise FrameError("wrong secret", "the node has no cluster-secret")
            raise FrameError("wrong secret", "the node's cluster-secret differs")
        self.is_done = True

    def _proof(self, prover: bytes) -> bytes:
        if not self._secret:
            return b""
        assert self.peer is not None
        ends = [(self._nonce, self._hello.id), (self._peer_nonce, self.peer.id)]
        if self.role is ACCEPTOR:
            ends.reverse()
        (dialer_nonce, dialer_id), (acceptor_nonce, acceptor_id) = ends
        message = b"".join((_LABEL, prover, b"\0", dialer_nonce, acceptor_nonce, dialer_id, acceptor_id))
        return hmac.new(self._secret, message, hashlib.sha256).digest()
