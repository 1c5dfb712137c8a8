"""Membership: which nodes belong to the cluster. Heartbeats, gossip, failures, leaving, forgetting.

Every node dials every other node it knows, so there are two links per pair. All that a node says, its PONGs included,
goes out on the link it dialed. The id of the other end is known, and proved (handshake.py), before anything else is
read. Hence two rules:

* A placeholder (HANDSHAKE) lives only until its link is up. Then it is resolved to the node that was found there,
  which may be new, known under another address, or ourselves.
* A stranger that says MEET enters the table at once, under the id it proved, and is dialed back. Until it is reached
  it is a newcomer (node_table.py): it does not count, and its reports about failures do not either. If it is not
  reached in time, it is given up. All else that a stranger says is ignored and counted.

PING and MEET ask for a heartbeat, and PONG is the answer. Only the answer proves both directions, so only it ends a
suspicion. An answer may be lost with a link, so an unanswered PING is repeated; the time of the first one counts.

A kill undoes nothing that other nodes were told: changed members are in the nodes file before a message leaves. A node
that we have met gets MEETs until it has answered, also from our next process. It answers when its own file has us. So a
PING from a stranger means one of two things: we have forgotten it, or we have lost our file (`Admission.may_rejoin`).

Pure. The driver sets the table's `now_ms` (monotonic) and `wall_ms` at the beginning of a turn, calls methods, and
empties the tray at the end (tray.py). Messages are in `outgoing`. A Wire dials and hangs up when told. It reports
link_up, link_down, accept and receive (bus.py; the simulator's Wire likewise).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from cluster_bus import failure, heartbeat
from cluster_bus.admission import UNHEARD, Admission
from cluster_bus.codec import PROTOCOL_MAX, PROTOCOL_MIN, FrameError, common_version
from cluster_bus.handshake import INCARNATION_MAX, Hello
from cluster_bus.heartbeat import FAILING, Entry, Header
from cluster_bus.links import Links
from cluster_bus.messages import FAIL_NODE, MEET, PING, PONG
from cluster_bus.node import FAIL, HANDSHAKE, ID_BYTES, LEAVING, UNKNOWN, Node
from cluster_bus.node_table import NodeTable
from cluster_bus.nodes_file import NodeLine, Notes, dump
from cluster_bus.outgoing import Outgoing
from cluster_bus.tray import Tray

if TYPE_CHECKING:
    from random import Random

# Spec N2, N3, N4, unless said otherwise.
NODE_TIMEOUT_MS: Final = 15_000
TICK_MS: Final = 100
RANDOM_PING_MS: Final = 1_000
RANDOM_PING_CHOICE: Final = 5
BUS_PORT_OFFSET: Final = 10_000
# Not of the spec. A lone node has no other nodes to watch.
LONE_TICK_MS: Final = 1_000
# After a longer pause between two ticks this node itself slept (suspended, stopped). Then silence proves nothing.
SLEPT_MS_MIN: Final = 2_000
# Items of one kind in a run. A node asks once a turn, or answers as many requests as several of our turns made.
HEARTBEATS_MAX: Final = 256


class Membership:
    """The conversations that keep the table of nodes. A change of our memory level is told with the next tick.

    table             the nodes and their groups (node_table.py). The core has its own reference to it, so reading
                      `linked` or `usable` is one step
    versions          the lowest and the highest version of the bus protocol that we speak
    node_timeout_ms   `cluster-node-timeout`; may change at any time
    ignored           counts of ignored messages and requests, by reason
    recoveries        how often a suspected or failed node answered again
    outgoing          the messages to be sent
    tray              all else to be done outside (tray.py)
    links             our outgoing links and addresses (links.py)
    admission         the ways in and out (admission.py)
    """

    def __init__(
        self,
        me: Node,
        outgoing: Outgoing,
        rng: Random,
        *,
        node_timeout_ms: int = NODE_TIMEOUT_MS,
        announced_host: str = "",
        versions: tuple[int, int] = (PROTOCOL_MIN, PROTOCOL_MAX),
    ) -> None:
        self.table = NodeTable(me)
        self.versions = versions
        self.node_timeout_ms = node_timeout_ms
        self.ignored: Counter[str] = Counter()
        self.recoveries = 0
        self.tray = Tray()
        self.links = Links(self.table, self.tray, rng, announced_host)
        self.admission = Admission(self.table, self.links, self.tray, rng, self.ignored)
        self._rng = rng
        self.outgoing = outgoing
        self._last_tick_ms = 0
        self._had_majority = True
        self._random_ping_at_ms = 0
        self._told_levels = (me.memory_level, me.is_disk_failing)
        self._answered: dict[Node, bool] = {}  # nodes answered at this moment -> whether with a greeting
        self._answered_ms = 0

    def hello(self) -> Hello:
        """Return our introduction for a link that opens."""
        me = self.table.me
        host, versions = self.links.announced_host, self.versions
        return Hello(me.id, me.run, host, me.port, me.bus_port, me.version, versions, incarnation=me.incarnation)

    def protocol_with(self, hello: Hello) -> int:
        """Return the bus protocol version that we speak with a node."""
        return common_version(hello.versions, self.versions)

    def load(self, lines: Iterable[NodeLine]) -> None:
        """Enter the nodes of a nodes file. Our own line gives LEAVING, the incarnation and the learned host."""
        for line in lines:
            if line.id == self.table.me.id:
                self.table.me.flags |= line.flags & LEAVING
                self.table.me.host = self.table.me.host or line.host
                self.table.me.incarnation = line.incarnation
                continue
            node = self.table.intern(line.id)
            node.host, node.port, node.bus_port = line.host, line.port, line.bus_port
            node.tls_port = line.tls_port
            if line.place is not None:
                node.datacenter, node.zone = line.place
                node.is_placed = True
            node.flags = line.flags
            node.must_meet, node.is_asked = line.must_meet, line.is_asked
            node.incarnation = line.incarnation
            node.fail_at_ms = self.table.now_ms if line.flags & FAIL else 0
            # Moments of another process's clock mean nothing here: a ping in flight starts now.
            if line.ping_sent_ms:
                self.links.await_pong(node)
            if line.pong_received_ms:
                node.pong_received_ms, node.pong_received_wall_ms = self.table.now_ms, self.table.wall_ms
            self.admission.admit(node)
        self.table.refresh()

    def resume(self, notes: Notes) -> None:
        """Continue meetings of the former process, and keep forgotten nodes out as it did; after `load`."""
        for node_id, incarnation in notes.forgotten:
            if node_id not in self.table.nodes:
                self.admission.keep_out(node_id, incarnation)
                self.table.mark_forgotten(node_id)  # Other nodes may still name it as a holder of jobs.
        for host, port, bus_port in notes.meetings:
            self._meet(host, port, bus_port, is_asked=True)
        self.admission.is_alone = notes.is_alone

    def dump(self) -> str:
        """Return the text of the nodes file as of now."""
        return dump(self.table.nodes.values(), self._notes())

    def _notes(self) -> Notes:
        meetings = [
            (node.host, node.port, node.bus_port)
            for node in self.table.nodes.values()
            if node.flags & HANDSHAKE and node.is_asked
        ]
        return Notes(meetings, self.admission.forgotten(), self.admission.is_alone)

    # -- requests of an operator --------------------------------------------------------------------

    def meet(self, host: str, port: int, bus_port: int | None = None) -> None:
        """CLUSTER MEET: shake hands with the node there (client port; the bus port is 10000 above unless given).

        `host` may be a name; the Wire resolves it. If a handshake with that address is in flight, its time starts
        again, and a new attempt replaces one that may hang (spec N4). Nodes that forgot one of the two take it back
        (spec N10).
        """
        self._begin_incarnation()
        self.tray.must_save = True
        self._meet(host, port, bus_port, is_asked=True)

    def meet_seed(self, host: str, port: int, bus_port: int) -> None:
        """Shake hands with a node of `cluster-seeds`. A start brings no forgotten node back (spec N5)."""
        self._meet(host, port, bus_port, is_asked=False)

    def _begin_incarnation(self) -> None:
        """Begin an incarnation, because an operator named us: from now on no earlier FORGET applies to us.

        The file has the number before other nodes hear it. The number is Unix time, which is above all former numbers,
        also those that were lost with a file.
        """
        me = self.table.me
        me.incarnation = min(max(me.incarnation + 1, self.table.wall_ms), INCARNATION_MAX)
        self.links.write_first()

    def _heed(self, node: Node) -> None:
        """Begin an incarnation if an operator asked this node to meet us; for a newcomer when it is reached."""
        if node.asked_at != node.heeded_at and not node.is_newcomer:
            node.heeded_at = node.asked_at
            self._begin_incarnation()

    def _meet(self, host: str, port: int, bus_port: int | None, *, is_asked: bool) -> None:
        node = self.table.find_handshake(host, port)
        if node is not None:
            node.known_since_ms = self.table.now_ms
            node.dial_at_ms = node.dial_gap_ms = 0
            if is_asked:
                self.links.dial_anew(node)
        else:
            node = self.admission.shake_hands(host, port, port + BUS_PORT_OFFSET if bus_port is None else bus_port)
        node.must_meet = True
        if is_asked and not node.is_asked:
            node.is_asked = True
            self.tray.must_write = self.tray.must_save = True

    def forget(self, node: Node) -> None:
        """CLUSTER FORGET: remove the node. Only an operator's MEET brings it back (spec N5)."""
        if not node.flags & HANDSHAKE:
            self.admission.keep_out(node.id, node.incarnation)
            if (handshake := self.table.find_handshake(node.host, node.port)) is not None:
                handshake.is_asked = False  # It may find another node there by now, but does not bring this one back.
        self.admission.expel(node)
        if node.flags & UNKNOWN:
            self._forget_named(node)  # A newcomer to us, and a holder to others.
        self.tray.must_write = self.tray.must_save = True
        self.table.refresh()
        self.admission.is_alone = self.table.size == 1

    def forget_unknown(self, name: bytes) -> bool:
        """CLUSTER FORGET of a node that others named and we never met, by its 40 characters; False if there is none."""
        node = next((node for node in self.table.known_nodes() if node.name == name), None)
        if node is None or not node.flags & UNKNOWN:
            return False
        self.admission.keep_out(node.id, node.incarnation or UNHEARD)
        self.tray.must_write = self.tray.must_save = True
        self._forget_named(node)
        return True

    def _forget_named(self, node: Node) -> None:
        self.tray.forgotten.append(self.table.mark_forgotten(node.id))

    def reset(self, *, hard: bool) -> None:
        """CLUSTER RESET: forget all other nodes; gossip may name them again. Hard: take another id, too. LEAVING stays.

        Nodes that were forgotten by FORGET stay out.
        """
        for node in list(self.table.nodes.values()):
            if node is not self.table.me:
                self.admission.expel(node)
        if hard:
            self.table.rename_me(self._rng.randbytes(ID_BYTES))
            self.tray.note("node-renamed", self.table.me)
        self.admission.is_alone = True
        self.tray.must_write = self.tray.must_save = True
        self.table.refresh()

    def set_leaving(self, flag: bool) -> None:
        """CLUSTER LEAVING yes or no: all linked nodes are told at once."""
        if flag != bool(self.table.me.flags & LEAVING):
            self.table.me.flags ^= LEAVING
            self.tray.must_write = self.tray.must_save = True
            self.tray.note("leaving-began" if flag else "leaving-ended", self.table.me)
            self._ping_linked()

    def set_place(self, datacenter: str, zone: str) -> None:
        """Say where this node is, by the names of its data centre and zone. All linked nodes are told at once."""
        me = self.table.me
        if (me.datacenter, me.zone) != (datacenter, zone):
            me.datacenter, me.zone = datacenter, zone
            self.table.epoch += 1
            self._ping_linked()

    # -- links ----------------------------------------------------------------------------------------

    def link_up(self, node: Node, hello: Hello, peer_host: str = "", local_host: str = "") -> Node | None:
        """Take a link that we dialed for `node`, after its handshake. Return the node that it belongs to from now on.

        If that is another object than `node`, this link replaces any link or attempt of that node, without a report.
        None: close the link, without a report. `peer_host` is the numeric address that was reached.
        """
        if self.table.nodes.get(node.id) is not node:
            return None
        owner: Node | None = node
        if node.flags & HANDSHAKE:
            owner = self._resolve(node, hello)
        elif hello.id != node.id:
            self.links.lose_address(node)
            owner = None
        if owner is not None:
            host = hello.host or peer_host or node.host
            self.links.learn_address(owner, host, hello.port or node.port, hello.bus_port or node.bus_port)
            self.links.learn_own_host(local_host, is_met=False)
            self.links.mark_up(owner, hello, self.protocol_with(hello))
            self.admission.take_back(owner)
            self._heed(owner)
            if self.table.size > 1:
                self.admission.is_alone = False
            self._greet(owner)
        return owner

    def link_down(self, node: Node) -> None:
        """Handle a broken link to `node`, or a failed attempt. Not called for links that we hung up ourselves."""
        if self.table.nodes.get(node.id) is node:
            was_linked = node.is_linked
            self.links.back_off(node)
            self.links.await_pong(node)
            if was_linked:
                self.table.refresh()

    def accept(self, hello: Hello, peer_host: str, local_host: str) -> Node | None:
        """Take a link to us, after its handshake. Return the node that dialed, None for a stranger (only MEET counts).

        The link shows that the node is alive. So we dial it if we have no link to it, or a link to a process that is
        gone.
        """
        node = self.table.find(hello.id)
        if node is None:
            return None
        self.links.learn_own_host(local_host, is_met=False)
        self.links.learn_run(node, hello.run)
        self.links.learn_address_heard(node, hello.host, hello.port, hello.bus_port, peer_host, hello.run)
        if node.is_linked and node.link_run != hello.run:
            self.links.redial(node)
        elif not node.is_linked and not node.is_dialing:
            self.links.dial(node)
        return node

    def stranger_gone(self, hello: Hello, peer_host: str) -> None:
        """Handle a stranger that closed its link before its first frame: it dialed another node, whose address we have.

        We may be that node without its nodes file, and with another id. Then our table is empty.
        """
        if self.table.size == 1 and not self.admission.is_alone and hello.id != self.table.me.id:
            self.admission.note_stranger(hello, hello.host or peer_host, "expected-another")

    def receive(
        self, sender: Node | None, hello: Hello, peer_host: str, local_host: str, kind: int, items: list[Any]
    ) -> None:
        """Handle membership messages of an incoming link; `sender` comes from accept(). FrameError: close it."""
        if len(items) > HEARTBEATS_MAX and kind in (PING, PONG, MEET):
            raise FrameError("too many heartbeats", f"{len(items)} at once")
        node = self.table.find(hello.id) if sender is None or self.table.find(sender.id) is not sender else sender
        for item in items:
            if kind == FAIL_NODE:
                self._on_fail_node(node, item)
                continue
            if kind not in (PING, PONG, MEET):
                self.ignored["unknown kind"] += 1
                continue
            header, entries = heartbeat.read(item)
            if node is None:
                if hello.id == self.table.me.id or (
                    kind != MEET and not (kind == PING and self.admission.may_rejoin(hello))
                ):
                    self.ignored["stranger"] += 1
                    if kind == PING and hello.id != self.table.me.id:
                        self.admission.note_stranger(hello, header.host or peer_host)
                    continue
                # A node of an older release has no incarnation. Its MEET may be an operator's.
                if hello.incarnation >= 0 and self.admission.is_forgotten(hello.id, header.incarnation):
                    self.ignored["forgotten"] += 1
                    self.admission.note_stranger(hello, header.host or peer_host)
                    continue
                if kind == PING:
                    self.tray.notices.append(("coming-back", {"node": hello.id.hex()}))
                node = self.admission.welcome(hello, header, peer_host)
                if node is None:
                    continue
            self.links.learn_own_host(local_host, is_met=kind == MEET)
            self.links.learn_address_heard(node, header.host, header.port, header.bus_port, peer_host, hello.run)
            self._on_header(node, header)
            if kind == MEET and header.is_asked:
                node.asked_at = header.incarnation
                self._heed(node)
            if kind == PONG:
                self._on_pong(node)
            else:
                self._answer(node, is_greeting=kind == MEET)
            for entry in entries:
                self._on_gossip(node, entry, peer_host)

    # -- time ----------------------------------------------------------------------------------------------

    def next_tick_ms(self) -> int:
        """Return when `tick` is due, monotonic."""
        return self._last_tick_ms + (TICK_MS if len(self.table.nodes) > 1 else LONE_TICK_MS)

    def tick(self) -> None:
        """Do the periodic work: dial, ping, suspect, give up handshakes."""
        if self.table.now_ms - self._last_tick_ms > max(SLEPT_MS_MIN, self.node_timeout_ms // 2):
            for node in self.table.nodes.values():
                if node.ping_sent_ms:
                    node.ping_sent_ms = max(self.table.now_ms, 1)
        self._last_tick_ms = self.table.now_ms
        is_news = (self.table.me.memory_level, self.table.me.is_disk_failing) != self._told_levels
        if is_news:
            self.table.refresh()
        is_missed = False
        for node in list(self.table.nodes.values()):
            if node is self.table.me:
                continue
            if node.flags & HANDSHAKE:
                self._tend_handshake(node)
                continue
            if node.is_newcomer and self.admission.is_over(node, self.node_timeout_ms):
                self.tray.note("node-not-reached", node)
                self.admission.expel(node)
                continue
            self._tend_link(node)
            is_missed |= self.links.miss(node)
            if failure.is_silent(node, self.table.now_ms, self.node_timeout_ms) and failure.suspect(node):
                is_news = True
                self._on_suspected(node)
        if is_missed:
            self.table.refresh()
        self._judge_state()
        if is_news:
            self._ping_linked()  # Immediately: agreement on a failure and the choice of holders wait for it.
        if self.links.is_unsaved:
            self.links.save_soon()
        if self.table.now_ms >= self._random_ping_at_ms:
            self._random_ping_at_ms = self.table.now_ms + RANDOM_PING_MS
            self._ping_random()

    def _judge_state(self) -> None:
        """Tell the log when the cluster fails, as seen from here, and when it is well again."""
        if self.table.has_majority == self._had_majority:
            return
        self._had_majority = self.table.has_majority
        name = "cluster-ok" if self._had_majority else "cluster-fail"
        self.tray.notices.append((name, {"lost": self.table.lost_count, "size": self.table.size}))

    def _tend_handshake(self, node: Node) -> None:
        if self.admission.is_over(node, self.node_timeout_ms):
            self.tray.note("handshake-failed", node, node.dial_error or "no node answers there")
            self.admission.expel(node)
        elif not node.is_dialing and self.table.now_ms >= node.dial_at_ms:
            self.links.dial(node)
        elif node.must_redial:
            self.links.dial_anew(node)

    def _tend_link(self, node: Node) -> None:
        now_ms, timeout_ms = self.table.now_ms, self.node_timeout_ms
        if not node.is_linked:
            self.links.await_pong(node)  # A node that can't be reached must become suspected, too.
            if not node.is_dialing and now_ms >= node.dial_at_ms:
                self.links.dial(node)
        elif node.ping_sent_ms:
            if now_ms - node.ping_sent_ms > timeout_ms // 2 and now_ms - node.link_since_ms > timeout_ms:
                self.links.redial(node)  # The node may be well and only this connection dead.
            elif now_ms - node.pinged_ms >= timeout_ms // 4:
                self._ping(node)
        elif now_ms - node.pong_received_ms > timeout_ms // 2:
            self._ping(node)

    def _ping_random(self) -> None:
        """Ping one of a few random nodes: the one whose last answer is oldest."""
        waiting = [node for node in self.table.linked if not node.ping_sent_ms]
        if waiting:
            few = self._rng.sample(waiting, min(RANDOM_PING_CHOICE, len(waiting)))
            self._ping(min(few, key=_pong_received_ms))

    # -- heartbeats ----------------------------------------------------------------------------------------

    def _ping(self, node: Node) -> None:
        self._beat(node, MEET if node.must_meet else PING)
        node.pinged_ms = self.table.now_ms
        self.links.await_pong(node)

    def _ping_linked(self) -> None:
        self._told_levels = (self.table.me.memory_level, self.table.me.is_disk_failing)
        for node in self.table.linked:
            self._ping(node)

    def _greet(self, node: Node) -> None:
        """Send the first message on a new link: our heartbeat with all nodes we know, and an answer if one is owed."""
        self._beat(node, MEET if node.must_meet else PING, is_greeting=True)
        node.pinged_ms = self.table.now_ms
        self.links.await_pong(node)
        if node.owes_pong:
            self._answer(node, is_greeting=False)

    def _answer(self, node: Node, *, is_greeting: bool) -> None:
        node.owes_pong = not node.is_linked
        if node.is_linked:
            if self._answered_ms != self.table.now_ms:
                self._answered_ms = self.table.now_ms
                self._answered.clear()
            if self._answered.get(node, -1) >= is_greeting:
                return  # It has asked again before it can have heard the answer.
            self._answered[node] = is_greeting
            self._beat(node, PONG, is_greeting=is_greeting)

    def _beat(self, node: Node, kind: int, *, is_greeting: bool = False) -> None:
        is_asked = node.is_asked if kind == MEET else None
        header = heartbeat.header_map(self.table.me, self.links.announced_host, is_asked=is_asked)
        about = heartbeat.choose(list(self.table.nodes.values()), node, self._rng, is_greeting=is_greeting)
        self.outgoing.send((node,), kind, (header, [heartbeat.entry(each, self.table.now_ms) for each in about]))

    def _on_pong(self, node: Node) -> None:
        node.ping_sent_ms = node.ping_sent_wall_ms = 0
        if node.must_meet:
            node.must_meet = node.is_asked = False
            self.links.write_first()
        node.pong_received_ms, node.pong_received_wall_ms = self.table.now_ms, self.table.wall_ms
        if failure.heal(node):
            self.recoveries += 1
            self.tray.note("node-recovered", node)
            self.links.save_soon()
            self.table.refresh()

    def _on_header(self, node: Node, header: Header) -> None:
        had_room = node.has_room
        node.memory_level = header.memory_level
        node.is_disk_failing = header.is_disk_failing
        if node.has_room != had_room:
            self.table.refresh()
        node.version = header.software
        self._learn_incarnation(node, header.incarnation)
        if node.tls_port != header.tls_port:
            node.tls_port = header.tls_port
            self.links.save_soon()
        if not node.is_placed or node.zone != header.zone or node.datacenter != header.datacenter:
            node.datacenter, node.zone = header.datacenter, header.zone
            node.is_placed = True
            if not node.is_newcomer:
                self.table.epoch += 1
                self.links.save_soon()
        if (node.flags ^ header.flags) & LEAVING:
            node.flags ^= LEAVING
            self.links.save_soon()
            self.table.refresh()

    def _learn_incarnation(self, node: Node, incarnation: int) -> None:
        if incarnation > node.incarnation:
            node.incarnation = incarnation
            self.links.save_soon()

    # -- gossip and failures ---------------------------------------------------------------------------

    def _on_gossip(self, sender: Node, entry: Entry, peer_host: str) -> None:
        """Handle the sender's word about another node: its opinion, or a node that we don't know."""
        if entry.id == self.table.me.id:
            return
        node = self.table.find(entry.id)
        if node is None:
            if not self.admission.is_forgotten(entry.id, entry.incarnation):
                self.admission.try_address(entry, peer_host)
            return
        if sender.is_newcomer:
            return
        self._learn_incarnation(node, entry.incarnation)
        if entry.flags & FAILING:
            failure.report(node, sender, self.table.now_ms)
            self._try_agree(node)
        else:
            failure.withdraw(node, sender)
        if node.flags & FAILING and (entry.host, entry.port, entry.bus_port) != (node.host, node.port, node.bus_port):
            self.admission.try_address(entry, peer_host)  # It may have moved, and the sender may know where.

    def _on_suspected(self, node: Node) -> None:
        self.tray.note("node-suspected", node)
        self.links.save_soon()
        self.table.refresh()
        self._try_agree(node)

    def _try_agree(self, node: Node) -> None:
        if failure.agree(node, self.table.size, self.table.now_ms, self.node_timeout_ms):
            self._on_failed(node, "a majority agrees")
            self.outgoing.send(self.table.linked, FAIL_NODE, (node.id,))

    def _on_fail_node(self, sender: Node | None, item: Any) -> None:
        """Handle FAIL_NODE: the sender says that a majority agreed. Ping the node: its answer heals it."""
        if not isinstance(item, list) or not item or not isinstance(item[0], bytes):
            raise FrameError("bad message", "FAIL_NODE without a node id")
        node = self.table.find(item[0])
        if sender is None or node is None or sender.is_newcomer:
            self.ignored["stranger"] += 1
        elif failure.mark_failed(node, self.table.now_ms):
            self._on_failed(node, f"{sender.name.decode()} says so")
            if node.is_linked:
                self._ping(node)

    def _on_failed(self, node: Node, why: str) -> None:
        self.tray.note("node-failed", node, why)
        self.links.save_soon()
        self.table.refresh()

    # -- handshakes ------------------------------------------------------------------------------------------

    def _resolve(self, placeholder: Node, hello: Hello) -> Node | None:
        """Return the node that a handshake's link has reached, ready to take the link over, or None to close it."""
        self.table.remove(placeholder)
        self.links.write_first()
        node = self.table.find(hello.id)
        if node is None and hello.id in self.table.nodes:
            return None  # We met ourselves, or a node that took the id of a placeholder.
        if node is None and not placeholder.is_asked and self.admission.is_forgotten(hello.id, hello.incarnation):
            return None  # Gossip or `cluster-seeds` gave us an address, and a forgotten node is there.
        if node is None:
            node = self.table.object_of(hello.id)
            self.admission.admit(node)
        elif node.is_linked and node.link_run == hello.run:
            if placeholder.is_asked:
                node.must_meet = node.is_asked = True
            self._beat(node, MEET, is_greeting=True)  # This is a second address of it. It may have forgotten us.
            return None
        else:
            self.links.mark_down(node)
        node.must_meet = True
        node.is_asked |= placeholder.is_asked
        return node


def _pong_received_ms(node: Node) -> int:
    return node.pong_received_ms
