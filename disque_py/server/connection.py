"""Client connection: reads the bytes of one client and writes its replies.

It consists of callbacks, without a coroutine or a task per connection. Input is parsed and run at once, within the
turn. Replies are written once, when the turn is over.

Memory per client is bounded. A client with more than PAUSE_BYTES of unread replies is not read from, and it is cut off
at the limit of its class. Replies that the node holds back until the disk has their records count as unread. A client
that waits, or sends faster than it is served, is not read from either. No client gets more than SLICE_NS per turn. Spec
B1, B3.

Most clients send one command, or a few, and wait for the replies. Such requests arrive in one piece, while no earlier
request of the client waits. `data_received` runs them directly: it queues nothing, and does not time a single command.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from cluster_bus.bus import is_loopback
from disque_py.commands import logins
from disque_py.commands.clients import runs_in_pause
from disque_py.core import delivery
from disque_py.core.broker import Broker
from disque_py.core.client import (
    REPLY_OFF,
    RUNNING,
    WAITS_FOR_COPIES,
    WAITS_FOR_FILE,
    WAITS_FOR_JOBS,
    WAITS_FOR_LOADING,
    WAITS_FOR_PARTS,
    Client,
)
from disque_py.core.errors import NOAUTH, CommandError
from disque_py.node import dispatch
from disque_py.resp.replies import error
from disque_py.resp.requests import RequestParser, whole_requests
from disque_py.server.log import VERBOSE, is_logged, tell
from disque_py.server.turn_loop import now_s

if TYPE_CHECKING:
    from disque_py.server.turn_loop import TurnLoop

# Bytes of unread replies at which a client's commands are no longer run. Replies that wait for the disk count by
# themselves, too: a client above this goes on when they are released.
PAUSE_BYTES: Final = 1024 * 1024
# Bytes received and not yet run at which a client is no longer read from.
BACKLOG_BYTES_MAX: Final = 1024 * 1024
# Bytes of an unfinished request, or of unread replies, of a client that has to log in. A login and its reply are
# shorter, and all other requests are refused.
STRANGER_BYTES_MAX: Final = 64 * 1024
SLICE_NS: Final = 500_000
# The time in which a client of TLS that is refused can read the reason, and how many may do so at a time. They count
# for no limit of clients, and must not use up the descriptors of the journal.
REFUSED_SECONDS: Final = 1.0
REFUSED_MAX: Final = 128
# How long a client that broke the protocol may go on sending. Its bytes are discarded, so that its call ends, and it
# reads the reason. 1 GB arrives in this time on a fast link, and 64 MB on one of 100 Mbit/s.
LINGER_SECONDS: Final = 10.0
# Bytes parsed at a time: some hundred microseconds of work, also for the smallest requests.
PIECE_BYTES: Final = 16 * 1024
STAR: Final = 42
NEXT_REQUEST: Final = b"\r\n*"
INLINE_PIECE_BYTES: Final = 2 * 1024
# A half-closed client in one of these states stays connected until its reply, because the state ends soon by itself,
# unless the request waits for an event (`Client.blocked`).
ENDING_SOON: Final = (RUNNING, WAITS_FOR_PARTS, WAITS_FOR_FILE, WAITS_FOR_LOADING)
BY_COMMON_NAME: Final = "CN"
# A longer pause is checked again after this time, because the loop accepts no longer delay.
ALARM_MS_MAX: Final = 60_000

TOO_MANY: Final = error("ERR max number of clients reached")
NOAUTH_REPLY: Final = error(NOAUTH)
PROTECTED: Final = error(
    "DENIED this node is in protected mode: it has no password and no bind, so it serves clients of its own machine"
    " only. To open it to other machines, set one of three directives: requirepass (in the config file, or with CONFIG"
    " SET on the node's machine); bind, with the addresses to listen on; or protected-mode no, if only trusted machines"
    " reach this port. bind and protected-mode need a restart"
)


class ClientConnection:
    """One client connection; the ClientPort of its Client, and a Protocol in the sense of asyncio.

    It has no base class, because compiled classes can't derive from asyncio's. Loops ask for methods only.
    """

    __slots__ = (
        "_alarm",
        "_alarm_ms",
        "_at",
        "_is_ended",
        "_is_lingering",
        "_is_quiet",
        "_is_refused",
        "_is_resuming",
        "_is_stuffed",
        "_left_bytes",
        "_moved_ms",
        "_offset",
        "_parser",
        "_requests",
        "_soft_since_s",
        "_transport",
        "_turns",
        "_unread",
        "_unread_bytes",
        "_write",
        "client",
    )

    def __init__(self, turns: TurnLoop) -> None:
        self._turns = turns
        self._transport: asyncio.Transport | None = None
        self._write: Callable[[bytes], None] = _ignore
        self._parser = RequestParser(turns.driver.broker.settings.proto_max_bulk_len)
        self._requests: list[list[bytes]] = []
        self._at = 0
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._offset = 0  # The bytes of the first element of _unread that are already parsed.
        self._is_stuffed = False
        self._is_resuming = False
        self._is_ended = False  # The client has closed its end of the connection.
        self._is_refused = False  # The client has logged in, has broken the protocol, and perhaps goes on sending.
        self._is_lingering = False  # It has got the reason, and its input is discarded until it hangs up.
        self._is_quiet = True  # No input is left over, and nothing keeps the client from being read.
        # Set while a pause holds commands back, and while the client lingers.
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._soft_since_s = 0.0
        self._moved_ms = 0  # The last time at which bytes came or went, checked once a second.
        self._left_bytes = 0  # Unread replies a second ago.
        self.client: Client | None = None

    # -- asyncio -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit a client, or refuse it: there are too many, or protected-mode excludes its machine."""
        turns = self._turns
        broker = turns.driver.broker
        self._transport = transport = cast(asyncio.Transport, transport)
        refusal = b""
        if is_protected(broker) and _is_foreign(transport):
            refusal = PROTECTED
            broker.stats.connections_foreign += 1
            broker.stats.foreign_client = self._address(transport)
        elif len(turns.connections) >= broker.settings.maxclients:
            refusal = TOO_MANY
            broker.stats.connections_beyond_maxclients += 1
        elif logins.is_full(broker):
            refusal = error(logins.connections_text(broker))
        if refusal:
            broker.stats.connections_rejected += 1
            transport.write(refusal)
            transport.close()
            if transport.get_extra_info("sslcontext") is not None:
                # Closing TLS waits for the other end, for half a minute.
                if turns.refused_count < REFUSED_MAX:
                    turns.refused_count += 1
                    turns.loop.call_later(REFUSED_SECONDS, self._end_refused)
                else:
                    transport.abort()
            return
        turns.driver.begin()
        broker.stats.connections_received += 1
        client_id = turns.next_client_id
        turns.next_client_id += 1
        client = Client(client_id, self, self._address(transport), broker.now_ms)
        client.is_unix = transport.get_extra_info("socket").family.name == "AF_UNIX"
        client.is_tls = transport.get_extra_info("sslcontext") is not None
        client.fd = transport.get_extra_info("socket").fileno()
        client.user = broker.users.of_clients
        self._write = transport.write
        self.client = client
        if client.is_tls and broker.settings.tls_auth_clients_user == BY_COMMON_NAME:
            _log_in(broker, client, transport)
        broker.clients[client_id] = client
        turns.connections[client_id] = self
        transport.set_write_buffer_limits(high=PAUSE_BYTES)
        if is_logged(VERBOSE):
            tell("client-connected", client=client.addr, clients=len(turns.connections))

    def _end_refused(self) -> None:
        """End a refused connection of TLS that is not closed yet."""
        self._turns.refused_count -= 1
        self._abort()

    def _address(self, transport: asyncio.Transport) -> str:
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            host = str(peer[0])
            return f"[{host}]:{peer[1]}" if ":" in host else f"{host}:{peer[1]}"
        return f"{self._turns.driver.broker.settings.unixsocket}:0"

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client, whose connection is gone."""
        client = self.client
        self._transport = None
        self._write = _ignore
        if self._alarm is not None:
            self._alarm.cancel()
        self._requests = []
        self._drop_unread()
        if client is not None:
            self._turns.driver.begin()
            dispatch.disconnect(self._turns.driver.broker, client)
            self._turns.connections.pop(client.id, None)
            self.client = None
            if is_logged(VERBOSE):
                tell("client-gone", client=client.addr, clients=len(self._turns.connections))

    def data_received(self, data: bytes) -> None:
        """Take the bytes, and run their commands unless the client has to wait."""
        client = self.client
        if client is None or client.close_asked:
            return
        driver = self._turns.driver
        if not driver.is_open:
            driver.begin()
        broker = driver.broker
        broker.stats.net_input_bytes += len(data)
        self._moved_ms = broker.now_ms
        if (
            self._is_quiet
            and client.waiting == RUNNING
            and len(data) <= PIECE_BYTES
            and broker.waits.clients_paused_until_ms <= broker.now_ms
            and client.held_bytes <= PAUSE_BYTES
        ):
            requests = whole_requests(data)
            if requests is not None and len(data) <= broker.settings.proto_max_bulk_len:
                broker.outbox.served.append(client)
                if requests[1:]:
                    until_ns = driver.clock.stopwatch_ns() + SLICE_NS
                    at = dispatch.execute(broker, client, requests, 0, until_ns, self._room(client))
                    is_left = at < len(requests)
                else:
                    at = dispatch.execute(broker, client, requests)
                    is_left = not at
                if is_left:
                    self._at = at
                    self._requests = requests  # The client waits before this command, or has had its slice.
                    self._is_quiet = False
                return
        broker.outbox.clients[client] = None
        self._parser.bulk_bytes_max = broker.settings.proto_max_bulk_len
        self._unread.append(data)
        self._unread_bytes += len(data)
        if not self._is_resuming:
            self._run(client)
        if self.input_bytes() > BACKLOG_BYTES_MAX and self._unread:
            self._throttle()
        if self._parser.pending_bytes > broker.settings.client_query_buffer_limit:
            self._abort()

    def pause_writing(self) -> None:
        """Stop reading this client's commands, because more than PAUSE_BYTES of replies wait."""
        self._is_stuffed = True
        self._is_quiet = False
        self._throttle()

    def resume_writing(self) -> None:
        """Read commands again, because the client has taken its replies."""
        self._is_stuffed = False
        self._soft_since_s = 0.0
        self._resume_soon()

    def eof_received(self) -> bool:
        """Answer the commands of a half-closed client, then close. A client that waits for an event is gone."""
        client, transport = self.client, self._transport
        if client is None or transport is None:
            return False
        is_half = transport.get_extra_info("sslcontext") is None  # TLS knows no half-closed connection.
        if self._is_lingering:
            return False
        if client.waiting == WAITS_FOR_JOBS:
            self._turns.driver.begin()
            self._stop_consuming(client)
            if is_half:
                self.close(after_replies=True)  # Replies of this pass of the loop may contain jobs.
            return is_half
        if not is_half or self._is_held():
            return False
        self._is_ended = True
        self._turns.driver.begin()
        self._turns.driver.broker.outbox.clients[client] = None
        return True

    # -- running -----------------------------------------------------------------------------------

    def _run(self, client: Client) -> None:
        """Parse and run input, as long as the client may go on, for at most one slice of time."""
        driver = self._turns.driver
        broker = driver.broker
        stopwatch_ns = driver.clock.stopwatch_ns
        until_ns = stopwatch_ns() + SLICE_NS
        is_held = self._is_held()
        is_free = not self._is_stuffed and not is_held and client.held_bytes <= PAUSE_BYTES
        is_late = False
        if is_held and not self._is_stuffed:
            self._run_in_pause(client, until_ns)
        while is_free and not client.close_asked:
            if self._at >= len(self._requests):
                self._requests = []
                self._at = 0
                if not self._parse(client, until_ns):
                    is_late = stopwatch_ns() > until_ns
                    break
            before = self._at
            room = self._room(client)
            self._at = dispatch.execute(broker, client, self._requests, self._at, until_ns, room)
            is_late = stopwatch_ns() > until_ns
            if is_late or self._at < len(self._requests) or self._at == before:
                break
        if is_free and self._parser.error and self._at >= len(self._requests) and not client.close_asked:
            self._refuse(client)  # The slice ended when all requests before the error had run.
        if client.close_asked:
            self._requests = []
            self._at = 0
            self._drop_unread()
        elif self._at >= len(self._requests) and not self._unread:
            if self._parser.pending_bytes > STRANGER_BYTES_MAX and logins.is_stranger(broker, client):
                self._refuse_long(client)
            else:
                self._unthrottle()
        elif is_free and (client.waiting == RUNNING or (is_late and client.waiting == WAITS_FOR_COPIES)):
            # Behind an ADDJOB that waits for its copies there may be another one, which need not wait for it.
            self._resume_soon()
        self._is_quiet = (
            self._at >= len(self._requests)
            and not self._unread
            and not self._is_stuffed
            and not self._is_resuming
            and self._parser.is_idle
        )

    def _room(self, client: Client) -> int:
        """Return how many bytes of replies the client may get before its next requests wait.

        Replies of this turn are not written yet. Once they are, the transport says whether the client took them. Others
        wait for the disk.
        """
        room = PAUSE_BYTES - self.output_bytes() - client.held_bytes
        for reply in client.out:
            room -= len(reply)
        return room

    def _parse(self, client: Client, until_ns: int) -> bool:
        """Parse requests out of a piece of the input, bounded so that parsing ends in time. Return whether any came."""
        parser = self._parser
        while self._unread:
            data = self._unread[0]
            start = self._offset
            piece = PIECE_BYTES if parser.pending_bytes or data[start] == STAR else INLINE_PIECE_BYTES
            end = start + max(piece, parser.wants)
            if end >= len(data):
                self._unread.popleft()
                self._offset = 0
                if start:
                    data = data[start:]
            else:
                # A piece that begins with a request, as usual, is parsed at a fifth of the cost.
                cut = -1 if parser.pending_bytes else data.rfind(NEXT_REQUEST, start, end)
                if cut > start:
                    end = cut + 2
                self._offset = end
                data = data[start:end]
            self._unread_bytes -= len(data)
            self._requests = self._parser.feed(data)
            if self._parser.error:
                self._drop_unread()
                if not self._requests:
                    self._refuse(client)
                    return False
            if self._requests:
                return True
            if self._unread and self._turns.driver.clock.stopwatch_ns() > until_ns:
                return False  # Parsing has taken time, though no request is complete.
        if self._parser.error:
            self._refuse(client)
        return False

    def _drop_unread(self) -> None:
        self._unread.clear()
        self._unread_bytes = 0
        self._offset = 0

    def _refuse(self, client: Client) -> None:
        """Reply with the protocol error, after all earlier replies, and close."""
        if client.reply_mode != REPLY_OFF:
            client.reply(error(self._parser.error))
        client.close_asked = True
        self._is_refused = not logins.is_stranger(self._turns.driver.broker, client)

    def _refuse_long(self, client: Client) -> None:
        """Read no more of a long request of a client that has to log in. Refuse it unless a login is under way."""
        if client.waiting != RUNNING:
            self._throttle()  # The reply to a login may take a second.
        else:
            client.reply(NOAUTH_REPLY)
            client.close_asked = True

    def _run_in_pause(self, client: Client, until_ns: int) -> None:
        """Run the client's first requests as far as a pause lets them through."""
        broker = self._turns.driver.broker
        if self._at >= len(self._requests):
            self._requests = []
            self._at = 0
            if not self._parse(client, until_ns):
                return
        while self._at < len(self._requests) and not client.close_asked:
            request = self._requests[self._at]
            if not runs_in_pause(broker, request) or not dispatch.execute(broker, client, [request]):
                break
            self._at += 1

    def _is_held(self) -> bool:
        """Return whether CLIENT PAUSE holds the commands of all clients."""
        broker = self._turns.driver.broker
        left_ms = broker.waits.clients_paused_until_ms - broker.now_ms
        if left_ms <= 0:
            return False
        alarm_ms = broker.now_ms + min(left_ms, ALARM_MS_MAX)
        if self._alarm is None or alarm_ms < self._alarm_ms:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_ms = alarm_ms
            self._alarm = self._turns.loop.call_later((alarm_ms - broker.now_ms) / 1000, self._on_alarm)
        return True

    def _on_alarm(self) -> None:
        """Go on if the pause is over."""
        self._alarm = None
        if not self._is_resuming:
            self._resume()

    def _resume_soon(self) -> None:
        if not self._is_resuming:
            self._is_resuming = True
            self._is_quiet = False
            self._turns.loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Continue the pipeline, in a new turn."""
        self._is_resuming = False
        client = self.client
        if client is None or self._transport is None or self._transport.is_closing():
            return
        driver = self._turns.driver
        driver.begin()
        driver.broker.outbox.clients[client] = None
        self._run(client)

    def _throttle(self) -> None:
        transport = self._transport
        if transport is not None and transport.is_reading():
            transport.pause_reading()

    def _unthrottle(self) -> None:
        transport = self._transport
        if transport is None or self._is_stuffed or self._is_ended:
            return
        if not transport.is_reading() and not transport.is_closing():
            transport.resume_reading()

    # -- ClientPort --------------------------------------------------------------------------------

    def wake(self) -> None:
        """End a turn: write the replies, and continue the pipeline of a client that waited."""
        client = self.client
        transport = self._transport
        if client is None or transport is None:
            return
        out = client.out
        has_progress = bool(out)
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            broker = self._turns.driver.broker
            broker.stats.net_output_bytes += len(data)
            self._moved_ms = broker.now_ms
            self._write(data)
            if self._is_stuffed or len(data) > PAUSE_BYTES:
                self._enforce_output_limit(client)
        elif client.held_bytes > PAUSE_BYTES:
            self._enforce_output_limit(client)  # Lines of MONITOR behind an ADDJOB, for example.
        if self._is_quiet and not client.close_asked and not self._is_ended:
            return
        if client.close_asked:
            # Not while replies to earlier requests are missing, or wait for the journal.
            if not client.slots and not client.held:
                self._end(transport)
        elif self._is_ended and self._is_done(client):
            if client.waiting == WAITS_FOR_JOBS:
                self._stop_consuming(client)
            transport.close()
        elif client.held_bytes > PAUSE_BYTES:
            return  # Its replies wait for the disk. When they are released it is woken again.
        elif self._at >= len(self._requests) and not self._unread:
            if client.waiting == RUNNING and not self._is_stuffed and not transport.is_reading():
                self._resume_soon()  # A long request has waited for the client's login.
        elif not self._is_stuffed and not self._is_held():
            # An ADDJOB may start while others wait. When some of these are answered there is room for more.
            if client.waiting == RUNNING or (has_progress and client.waiting == WAITS_FOR_COPIES):
                self._resume_soon()

    def _end(self, transport: asyncio.Transport) -> None:
        """Close the connection behind the last reply. A refused client that may still be sending lingers.

        If the connection were closed while bytes arrive, the system would reset it, and the client's call would fail
        before it reads the reason.
        """
        if not self._is_refused or self._is_ended or not transport.can_write_eof():
            transport.close()
        elif not self._is_lingering:
            self._is_lingering = True
            transport.write_eof()
            if not transport.is_reading():
                transport.resume_reading()
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._turns.loop.call_later(LINGER_SECONDS, self._abort)

    def _stop_consuming(self, client: Client) -> None:
        """Stop deliveries now, before the loop reports the loss: a job delivered in between would reach no client."""
        delivery.stop_waiting(self._turns.driver.broker, client)

    def _is_done(self, client: Client) -> bool:
        """Return whether a half-closed client has got all its replies, or waits for an event that may never come."""
        if client.held:
            return False
        if client.waiting == RUNNING:
            return self._at >= len(self._requests) and not self._unread
        return client.waiting not in ENDING_SOON or client.blocked is not None

    def close(self, *, after_replies: bool) -> None:
        """Close the connection: at once, or when the client has got all written replies."""
        client = self.client
        if client is None:
            return
        if after_replies and not self._is_lingering:
            client.close_asked = True
            self._turns.driver.begin()
            self._turns.driver.broker.outbox.clients[client] = None
            return
        if client.waiting == WAITS_FOR_JOBS:
            self._turns.driver.begin()
            self._stop_consuming(client)
        self._abort()

    def input_bytes(self) -> int:
        """Return the bytes received and not run."""
        return self._parser.pending_bytes + self._unread_bytes

    def output_bytes(self) -> int:
        """Return the reply bytes that the client has not taken."""
        transport = self._transport
        return transport.get_write_buffer_size() if transport is not None else 0

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _enforce_output_limit(self, client: Client) -> None:
        """Cut off a client at the hard limit of its class, or above the soft one for too long."""
        broker = self._turns.driver.broker
        limits = broker.settings.client_output_buffer_limit
        limit = limits.stream if client.is_monitor else limits.normal
        size = self.output_bytes() + client.held_bytes
        is_refused = size > STRANGER_BYTES_MAX and logins.is_stranger(broker, client)
        if is_refused or (limit.hard_bytes and size > limit.hard_bytes):
            self._abort()
        elif limit.soft_bytes and size > limit.soft_bytes:
            if not self._soft_since_s:
                self._soft_since_s = now_s()
            elif limit.soft_seconds and now_s() - self._soft_since_s > limit.soft_seconds:
                self._abort()
        else:
            self._soft_since_s = 0.0

    def look_after(self, now_ms: int, idle_ms: int) -> None:
        """Apply the limits that time alone reaches: soft output limits, and `timeout` for idle clients."""
        client = self.client
        if client is None:
            return
        left_bytes = self.output_bytes()
        if left_bytes or client.held or self._soft_since_s:  # Limits may be below PAUSE_BYTES.
            self._enforce_output_limit(client)
        if not idle_ms or client.is_monitor:
            return
        if client.waiting != RUNNING or client.held or left_bytes != self._left_bytes or self._is_paused(now_ms):
            self._left_bytes = left_bytes
            self._moved_ms = now_ms  # A client that waits for us, or reads its replies, is not idle.
        elif now_ms - max(self._moved_ms, client.active_ms) > idle_ms:
            self._abort()

    def _is_paused(self, now_ms: int) -> bool:
        return self._turns.driver.broker.waits.clients_paused_until_ms > now_ms


def _ignore(data: bytes) -> None:
    """Write nothing: there is no connection yet."""


def is_protected(broker: Broker) -> bool:
    """Return whether protected-mode is in force: there is no bind, and clients need no login."""
    settings = broker.settings
    return settings.protected_mode and not settings.bind and not logins.needs_login(broker)


def _log_in(broker: Broker, client: Client, transport: asyncio.Transport) -> None:
    """Make the client the user that its certificate names. Without such a user it has to log in."""
    certificate = transport.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if len(names) != 1:
        return  # Another program might choose another one of several names.
    try:
        logins.enter_by_certificate(broker, client, names[0].encode())
    except CommandError as refused:
        client.reply(error(refused.text))
        client.close_asked = True
        broker.outbox.clients[client] = None


def _is_foreign(transport: asyncio.Transport) -> bool:
    """Return whether the client may be on another machine. A client of a unix socket never is.

    The system names no peer for a connection that was reset before it was accepted, though its bytes still arrive. Such
    a client counts as foreign.
    """
    if transport.get_extra_info("socket").family == socket.AF_UNIX:
        return False
    peer = transport.get_extra_info("peername")
    return not (isinstance(peer, tuple) and len(peer) >= 2 and is_loopback(str(peer[0])))
