"""The bus on real sockets: listener, dialing, one outgoing link per node (ports.Wire).

Membership tells the Bus which nodes to dial and to hang up on (Wire). The Bus reports outcomes to its owner, the
driver, which passes them to membership. So the Bus keeps only what sockets need: the link of each node, attempts in
flight, and links that others dialed. It knows no job. Runs of job kinds are handed on as they came: one frame per call,
unless membership messages are between them.

Without a secret, a peer that dialed us and that we have not reached ourselves may be anything. Such links are limited
in number and in the size of a frame. If there are too many, the oldest is closed: an honest node needs only a moment.

A stranger's job messages close its link. Every refusal is counted in `rejected` by reason. It is also logged, each
reason once in LOG_GAP_SECONDS, so that a port scanner does not fill the disk.
"""

# Stays Python: sockets.
from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from cluster_bus.codec import FRAME_BYTES_MAX, FrameError, Run, without_large
from cluster_bus.handshake import ACCEPTOR, DIALER, NONCE_BYTES, Handshake, Hello
from cluster_bus.link import HANDSHAKE_SECONDS, UNSENT_BYTES_MAX, Link
from cluster_bus.listening import TlsListener, bound, listen
from cluster_bus.messages import FIRST_JOB_KIND
from cluster_bus.node import FORGOTTEN, HANDSHAKE, UNKNOWN, Node

CONNECT_SECONDS: Final = 5.0
# A reason for which links are refused is logged once in this time.
LOG_GAP_SECONDS: Final = 10.0
# Connections that have not proved anything yet; a cluster's nodes need one each, for milliseconds.
UNPROVED_LINKS_MAX: Final = 512
# Links of strangers: nodes that still dial us after we forgot them, and nodes about to say MEET.
STRANGER_LINKS_MAX: Final = 256
# A peer that we have not reached ourselves may send no larger frame: a MEET, its gossip, and what a turn adds.
UNREACHED_FRAME_BYTES_MAX: Final = 256 << 10
# Connections that the system keeps until they are accepted: the default of `tcp-backlog`.
BACKLOG: Final = 511

ALL_ADDRESSES: Final = ("0.0.0.0", "::")
LOOPBACK_ADDRESSES: Final = ("127.0.0.1", "::1")


class BusOwner(Protocol):
    """The owner to which the Bus reports: the driver. Every call may be the beginning of a turn."""

    def hello(self) -> Hello:
        """Return our introduction for a link that opens (Membership.hello)."""

    def on_link_up(self, node: Node, hello: Hello, peer_host: str, local_host: str) -> Node | None:
        """Membership.link_up: the node that the link belongs to from now on, None to close it."""

    def on_link_down(self, node: Node) -> None:
        """Membership.link_down."""

    def on_accept(self, hello: Hello, peer_host: str, local_host: str) -> Node | None:
        """Membership.accept: the node that dialed us, None for a stranger. Called again with a stranger's frames."""

    def on_stranger_gone(self, hello: Hello, peer_host: str) -> None:
        """Membership.stranger_gone: a stranger closed its link before its first frame."""

    def on_incoming_lost(self, node: Node) -> None:
        """Take note that the link on which `node` spoke to us is gone, or is about to be replaced by a new one."""

    def on_membership(
        self, sender: Node | None, hello: Hello, peer_host: str, local_host: str, kind: int, items: list[Any]
    ) -> None:
        """Membership.receive; FrameError closes the link."""

    def on_runs(self, sender: Node, runs: list[Run]) -> None:
        """Job messages, in order; FrameError closes the link."""


def bind_addresses(bind: Sequence[str], *, has_secret: bool, protected_mode: bool) -> list[str]:
    """Return the addresses on which the bus listens, given `bind` (empty: all addresses).

    Without a secret, any host that reaches the bus could delete or inject jobs (spec Q28). So the bus stays on
    loopback unless `protected-mode no` (spec S2).
    """
    if has_secret or not protected_mode:
        return list(bind or ALL_ADDRESSES)
    return [host for host in bind if is_loopback(host)] or list(LOOPBACK_ADDRESSES)


def is_loopback(host: str) -> bool:
    """Return whether only processes of this machine reach this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reason_of(error: OSError | UnicodeError) -> str:
    """Return the reason of a failed attempt to connect, for people."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError | socket.gaierror | UnicodeError):
        return error.strerror or str(error) if isinstance(error, OSError) else str(error)
    # asyncio's own text only says which call failed.
    return os.strerror(error.errno) if error.errno else str(error)


def source_address(binds: Sequence[str], target: str) -> str | None:
    """Return the address from which to dial `target` (numeric): our first bind address that reaches it.

    None: the system chooses. The other end takes our address from the socket (spec N7), so it should be one we
    listen on.
    """
    goal = ipaddress.ip_address(target)
    for host in binds:
        try:
            source = ipaddress.ip_address(host)
        except ValueError:
            continue
        if source.is_unspecified:
            return None
        if source.version == goal.version and source.is_loopback == goal.is_loopback:
            return host
    return None


class Bus:
    """A Wire on asyncio; see the module.

    port            the port it listens on, after `listen`
    secret          `cluster-secret`; a change applies to new links
    rejected        links refused or closed for cause, by reason
    """

    def __init__(
        self,
        owner: BusOwner,
        *,
        secret: bytes = b"",
        frame_bytes_max: int = FRAME_BYTES_MAX,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        log: Callable[[str, str], None] | None = None,
    ) -> None:
        self.secret = secret
        self.port = 0
        self.rejected: Counter[str] = Counter()
        self._owner = owner
        self._frame_bytes_max = frame_bytes_max
        self._unsent_bytes_max = unsent_bytes_max
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._log = log
        self._logged_at: dict[str, float] = {}
        self._binds: list[str] = []
        self._servers: list[asyncio.Server | TlsListener] = []
        self._socks: list[socket.socket] = []
        self._attempts: dict[Node, tuple[object, asyncio.Task[None]]] = {}
        self._outgoing: dict[Node, Link] = {}  # from connect on
        self._ready: dict[Node, Link] = {}  # from the end of the handshake on
        self._unproved: dict[Link, None] = {}
        self._strangers: dict[Link, bool] = {}  # Whether it has sent a frame.
        self._incoming: dict[bytes, Link] = {}  # id -> the link that node dialed

    # -- listening -----------------------------------------------------------------------------------------

    async def listen(self, hosts: Sequence[str], port: int) -> None:
        """Accept links on these addresses; OSError if one can't be bound.

        A machine may have no IPv6, so failure on the IPv6 wildcard or loopback is ignored if another address is bound.
        """
        self._binds = list(hosts)
        for host in hosts:
            try:
                await self._listen_on(host, port)
            except OSError as error:
                no_ipv6 = error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) and host in ("::", "::1")
                if no_ipv6 and self._servers:
                    continue
                await self.close()
                raise
        self.port = self._socks[0].getsockname()[1] if self._socks else 0

    async def _listen_on(self, host: str, port: int) -> None:
        """Listen on each address of a host."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        log = self._log or (lambda level, text: None)
        for family, _, _, _, address in dict.fromkeys(found):  # /etc/hosts may name one twice.
            sock = bound(family, address)
            self._socks.append(sock)
            self._servers.append(
                await listen(sock, BACKLOG, self._server_tls, self._accepted_link, HANDSHAKE_SECONDS, log)
            )

    async def close(self) -> None:
        """Stop listening and drop every link, without reports."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        for sock in self._socks:
            sock.close()
        self._socks.clear()
        tasks = [task for _, task in self._attempts.values()]
        self._attempts.clear()
        for task in tasks:
            task.cancel()
        for link in [*self._outgoing.values(), *self._unproved, *self._incoming.values()]:
            link.drop()
        for links in (self._outgoing, self._ready, self._incoming):
            links.clear()
        self._unproved.clear()
        self._strangers.clear()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- Wire ------------------------------------------------------------------------------------------------

    def dial(self, node: Node) -> None:
        """Start connecting; on_link_up or on_link_down will follow, unless `hang_up` comes first."""
        self._drop_outgoing(node)
        token = object()
        task = asyncio.get_running_loop().create_task(self._dial(node, node.host, node.bus_port, token))
        self._attempts[node] = (token, task)

    def hang_up(self, node: Node) -> None:
        """Drop our link or attempt without a report; of a forgotten node also the link it dialed."""
        self._drop_outgoing(node)
        if node.flags & (FORGOTTEN | UNKNOWN) and (link := self._incoming.pop(node.id, None)) is not None:
            self._strangers.pop(link, None)
            link.drop()

    def send(self, node: Node, frame: bytes) -> None:
        """Queue one or more whole frames, except those larger than the node takes. Without a link, drop them."""
        link = self._ready.get(node)
        if link is None:
            return
        assert link.peer is not None
        if len(frame) > link.peer.frame_bytes_max:
            # Such a frame would close the link, again and again. Only the job in it should be affected.
            small = without_large(frame, link.peer.frame_bytes_max)
            if (left_out := len(frame) - len(small)) > 0:
                self._reject("frame too large for the node", f"{left_out} bytes not sent to {_named(node)}")
                frame = small
        link.write(frame)

    # -- LinkOwner -------------------------------------------------------------------------------------------

    def link_opened(self, link: Link) -> None:
        """Register a new connection. An attempt of ours may be given up by now. Incoming ones are few until proved."""
        if link.role is DIALER:
            assert link.node is not None
            attempt = self._attempts.get(link.node)
            if attempt is None or attempt[0] is not link.token:
                link.drop()
                return
            del self._attempts[link.node]
            self._outgoing[link.node] = link
        else:
            self._unproved[link] = None
            if len(self._unproved) > UNPROVED_LINKS_MAX:
                self._drop_oldest(self._unproved, "too many handshakes")

    def link_ready(self, link: Link) -> None:
        """Register a link whose handshake is over."""
        hello = link.peer
        assert hello is not None
        if link.role is DIALER:
            self._outgoing_ready(link, hello)
            return
        del self._unproved[link]
        older = self._incoming.pop(hello.id, None)
        if older is not None:  # The node gave it up. Its remaining frames must not be read after those of the new link.
            older.drop()
            self._strangers.pop(older, None)
            if older.node is not None:
                self._owner.on_incoming_lost(older.node)
        self._incoming[hello.id] = link
        node = link.node = self._owner.on_accept(hello, link.peer_host, link.local_host)
        if node is None or node.is_newcomer:
            link.expect_frames(min(self._frame_bytes_max, UNREACHED_FRAME_BYTES_MAX))
        if node is None:
            self._strangers[link] = False
            if len(self._strangers) > STRANGER_LINKS_MAX:
                self._drop_oldest(self._strangers, "too many strangers")

    def link_frame(self, link: Link, runs: list[Run]) -> None:
        """Hand out the runs of a frame, in order."""
        if link.node is None and link in self._strangers:
            self._strangers[link] = True
        hello = link.peer
        assert hello is not None
        jobs: list[Run] = []
        for run in runs:
            if run[0] >= FIRST_JOB_KIND:
                jobs.append(run)
                continue
            if jobs:
                self._on_jobs(link, jobs)
                jobs = []
            self._owner.on_membership(link.node, hello, link.peer_host, link.local_host, run[0], run[1:])
            self._identify(link)  # A MEET makes a stranger a node.
        if jobs:
            self._on_jobs(link, jobs)

    def link_jobs(self, sender: Node, runs: list[Run]) -> None:
        """Hand out the runs of a frame that has only job messages."""
        self._owner.on_runs(sender, runs)

    def link_lost(self, link: Link, reason: str, detail: str) -> None:
        """Remove a link that is closed, and report it."""
        if reason:
            name = link.peer.id.hex() if link.peer is not None else "unknown"
            where = _named(link.node) if link.node is not None else f"node {name} from {link.peer_host}"
            self._reject(reason, f"{where}: {detail}" if detail else where)
        if link.role is DIALER:
            assert link.node is not None
            if reason:
                link.node.dial_error = f"{reason}: {detail}" if detail else reason
            if self._outgoing.get(link.node) is link:
                del self._outgoing[link.node]
                self._ready.pop(link.node, None)
                self._owner.on_link_down(link.node)
            return
        self._unproved.pop(link, None)
        is_silent_stranger = not reason and not self._strangers.pop(link, True)
        if link.peer is not None and self._incoming.get(link.peer.id) is link:
            del self._incoming[link.peer.id]
            if is_silent_stranger:
                self._owner.on_stranger_gone(link.peer, link.peer_host)
            if link.node is not None:
                self._owner.on_incoming_lost(link.node)

    # -- helpers ---------------------------------------------------------------------------------------------

    def _on_jobs(self, link: Link, runs: list[Run]) -> None:
        sender = self._identify(link)
        if sender is None:
            raise FrameError("stranger", "job messages from a node that is not known here")
        self._owner.on_runs(sender, runs)

    def _identify(self, link: Link) -> Node | None:
        """Return the node that dialed this link; it may have been met or forgotten since."""
        node = link.node
        if node is None or node.flags & (FORGOTTEN | UNKNOWN):
            assert link.peer is not None
            node = link.node = self._owner.on_accept(link.peer, link.peer_host, link.local_host)
            if node is not None:
                self._strangers.pop(link, None)
        return node

    def _drop_oldest(self, links: dict[Link, None] | dict[Link, bool], reason: str) -> None:
        link = next(iter(links))
        del links[link]
        if link.peer is not None and self._incoming.get(link.peer.id) is link:
            del self._incoming[link.peer.id]
        self._reject(reason, link.peer_host)
        link.drop()

    def _outgoing_ready(self, link: Link, hello: Hello) -> None:
        node = link.node
        assert node is not None
        node.dial_error = ""
        resolved = self._owner.on_link_up(node, hello, link.peer_host, link.local_host)
        if resolved is not node:
            self._outgoing.pop(node, None)
            if resolved is None:
                link.drop()
                return
            self._drop_outgoing(resolved)
            link.node = resolved
            self._outgoing[resolved] = link
        self._ready[resolved] = link
        if (incoming := self._incoming.get(resolved.id)) is None:
            return
        assert incoming.peer is not None
        if incoming.peer.run == hello.run:
            incoming.expect_frames(self._frame_bytes_max)
        else:  # A link of the former process: its hand-over numbers mean other hand-overs now.
            del self._incoming[resolved.id]
            self._strangers.pop(incoming, None)
            incoming.drop()
            self._owner.on_incoming_lost(resolved)

    def _drop_outgoing(self, node: Node) -> None:
        if (attempt := self._attempts.pop(node, None)) is not None:
            attempt[1].cancel()
        self._ready.pop(node, None)
        if (link := self._outgoing.pop(node, None)) is not None:
            link.drop()

    def _accepted_link(self) -> asyncio.Protocol:
        return cast(asyncio.Protocol, self._link(ACCEPTOR, None, None))

    def _link(self, role: bytes, node: Node | None, token: object) -> Link:
        hello = self._owner.hello()._replace(frame_bytes_max=self._frame_bytes_max)
        handshake = Handshake(role, hello, os.urandom(NONCE_BYTES), self.secret)
        return Link(
            self,
            handshake,
            node,
            token,
            frame_bytes_max=self._frame_bytes_max,
            unsent_bytes_max=self._unsent_bytes_max,
        )

    async def _dial(self, node: Node, host: str, port: int, token: object) -> None:
        """Resolve and connect; from connection_made on the link itself reports."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._connect(node, host, port, token)
        except (OSError, UnicodeError) as error:  # refused, unreachable, timed out, TLS; not a host name
            node.dial_error = reason_of(error)
            if isinstance(error, ssl.SSLError):
                self._reject("tls", f"{host}:{port}: {error}")
        finally:
            attempt = self._attempts.get(node)
            if attempt is not None and attempt[0] is token:
                del self._attempts[node]
                self._owner.on_link_down(node)

    async def _connect(self, node: Node, host: str, port: int, token: object) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure: OSError | None = None
        for _, _, _, _, address in found:
            source = source_address(self._binds, str(address[0]).partition("%")[0])
            try:
                await loop.create_connection(
                    lambda: cast(asyncio.Protocol, self._link(DIALER, node, token)),
                    str(address[0]),
                    port,
                    local_addr=None if source is None else (source, 0),
                    ssl=self._client_tls,
                    server_hostname=host if self._client_tls else None,
                )
                return
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure

    def _reject(self, reason: str, detail: str) -> None:
        self.rejected[reason] += 1
        now = asyncio.get_running_loop().time()
        if self._log is not None and now - self._logged_at.get(reason, -LOG_GAP_SECONDS) >= LOG_GAP_SECONDS:
            self._logged_at[reason] = now
            self._log("warning", f"bus: {reason} ({detail})")


def _named(node: Node) -> str:
    """Return the node for people. The id of a handshake is a placeholder, which tells nothing."""
    address = f"{node.host}:{node.port}"
    return f"the node at {address}" if node.flags & HANDSHAKE else f"node {node.name.decode()} at {address}"
