"""Queue settings on disk and on other nodes: SETTING, SETTINGS_HAVE, SETTINGS_DIGEST, ASKSETTINGS, QLENGTHS.

A change takes effect in memory immediately. The host writes it to a file and syncs the file. Only then is the change
sent to other nodes. So a crash can't undo a version that other nodes know, and no version is ever given to two changes.
A node that receives a change also writes it, and then tells all nodes that it has it. The client of a QUEUE SET waits
for the file, and then up to a second for the linked nodes. Spec QS3.

When a link comes up, a node with settings sends a digest of all of them. The other node asks for the settings if its
own digest differs. As both nodes do this, both reach the same state. After the link of a third node has broken, the
remaining nodes do the same, because a last change of that node may have reached only some of them. A node that starts
asks in any case, and makes GETJOB and ADDJOB wait for the answer. Spec QS4, QS5.

Once a second, nodes tell each other the lengths of queues that have a `maxlen` (spec QS7).

Settings from other nodes are checked and bounded (queue_settings.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Final

from cluster_bus.messages import ASKSETTINGS, QLENGTHS, SETTING, SETTINGS_DIGEST, SETTINGS_HAVE
from cluster_bus.node import Node
from disque_py.core.broker import Broker
from disque_py.core.queue_settings import COUNTER_MAX, RESET_FIELD, Item, is_item
from disque_py.core.settings_exchange import Waiting
from disque_py.core.versions import ATTEMPTS
from disque_py.log_lines import tell

# The client of a change waits this long for linked nodes.
LINKED_MS: Final = 1_000
# After a start, GETJOB and ADDJOB wait at most this long for settings.
START_MS: Final = 2_000
# After a link has broken, the other nodes compare their settings when this is over. Differing nodes are asked one by
# one, at this interval.
COMPARE_MS: Final = 1_000
# A write that failed is repeated after this.
RETRY_MS: Final = 2_000
# All settings are sent in parts of at most this many settings and about this many bytes, summed over all nodes that
# asked. A part takes about a millisecond.
ITEMS_PER_PART: Final = 250
BYTES_PER_PART: Final = 256 * 1024
PART_MS: Final = 10
# After a write of more queues than this, other nodes get only the digest.
HAVE_MAX: Final = 200
# Changed lengths of queues are sent once a second. Such a round has this many steps, each of at least LENGTHS_MIN
# queues.
ROUND_MS: Final = 1_000
LENGTH_STEPS: Final = 8
LENGTHS_MIN: Final = 100

# The occasions of a SETTINGS_DIGEST.
DIGEST_OF_LINK: Final = 0  # A link has come up. If the digest differs, the receiver asks for the settings.
DIGEST_OF_ALL: Final = 1  # All settings were sent before it.
DIGEST_OF_NEWS: Final = 2  # A write was done. An equal digest is a confirmation, and another one has no effect.
DIGEST_OF_MANY: Final = 3  # The same, after a write of more than HAVE_MAX queues.
DIGEST_OF_LOSS: Final = 4  # The link of a third node broke. If the digest stays different, the receiver asks later.


# -- changes ------------------------------------------------------------------------------------------------------


def change(
    broker: Broker, name: bytes, values: list[tuple[bytes, bytes]], done: Callable[[OSError | None], None]
) -> None:
    """Change settings of a queue. The caller has checked `has_room`, and that there is a next version.

    values   pairs of field and value; a single RESET_FIELD for a RESET
    done     is called when the settings are on disk, and linked nodes have confirmed them or LINKED_MS are over
    """
    table = broker.queue_settings
    counter = table.next_counter(name)
    for field, value in values:
        table.merge((name, field, value, counter, broker.me.id))
    table.exchange.waiting[Waiting(name, table.number, done)] = 0
    _write(broker)


def note(broker: Broker, name: bytes, values: list[tuple[bytes, bytes]]) -> bool:
    """Change a state for which no client waits. Return False if there is no room for it or no next version."""
    table = broker.queue_settings
    counter = table.next_counter(name)
    if counter > COUNTER_MAX or not has_room(broker, name, values):
        return False
    for field, value in values:
        table.merge((name, field, value, counter, broker.me.id))
    _write(broker)
    return True


def has_room(broker: Broker, name: bytes, values: list[tuple[bytes, bytes]]) -> bool:
    """Return whether there is room for these settings of a queue."""
    return broker.queue_settings.has_room(name, len(values), sum(len(field) + len(value) for field, value in values))


def behind(broker: Broker, name: bytes) -> int:
    """Return the number of known nodes that have not confirmed the newest version of this queue's settings."""
    table = broker.queue_settings
    state = table.states.get(name)
    if state is None:
        return 0
    return sum(1 for node in broker.members() if not table.exchange.has_confirmed(state, node))


def forget_all(broker: Broker, done: Callable[[OSError | None], None]) -> None:
    """Forget all settings, because the node leaves its cluster. `done` is called when the file has none either."""
    table = broker.queue_settings
    exchange = table.exchange
    has_file = bool(table.states) or exchange.is_writing or exchange.retry_at_ms > 0
    table.clear()
    exchange.forget_nodes()
    if not has_file:
        done(None)
        return
    exchange.is_void = True
    exchange.waiting[Waiting(b"", table.number, done)] = 0
    exchange.retry_at_ms = 0
    _write(broker)


# -- the file -----------------------------------------------------------------------------------------------------


def _write(broker: Broker) -> None:
    """Write the changes. If a write is in progress, the next write follows it."""
    table = broker.queue_settings
    exchange = table.exchange
    if exchange.is_writing or exchange.retry_at_ms or not (table.unsaved or exchange.is_void):
        return
    exchange.is_writing = True
    is_void, exchange.is_void = exchange.is_void, False
    items = table.take_unsaved()
    number, digest = table.number, table.digest

    def written(failure: OSError | None) -> None:
        exchange.is_writing = False
        if failure is not None:
            exchange.is_void |= is_void
            # A file that was moved away, or replaced by another one, is written anew: the table has all settings.
            is_gone = isinstance(failure, FileNotFoundError)
            exchange.is_void |= is_gone
            table.put_back(list(table.all_items()) if is_gone else items)
            exchange.retry_at_ms = broker.now_ms + RETRY_MS
            is_new = not exchange.trouble
            exchange.trouble = failure.strerror or str(failure)
            if is_new:
                tell(broker.host, "queue-settings-failed", reason=exchange.trouble)
            for waiting in [waiting for waiting in exchange.waiting if waiting.number <= number]:
                if not exchange.waiting[waiting]:
                    del exchange.waiting[waiting]
                    waiting.done(failure)
            return
        if exchange.trouble:
            exchange.trouble = ""
            tell(broker.host, "queue-settings-written")
        exchange.saved_number, exchange.saved_digest = number, digest
        _tell_written(broker, items)
        _written(broker)

    broker.host.write_queue_settings(items, is_void, written)


def _written(broker: Broker) -> None:
    """Continue after a write. The commands whose changes it contains now wait for other nodes."""
    exchange = broker.queue_settings.exchange
    for waiting, until_ms in exchange.waiting.items():
        if not until_ms and waiting.number <= exchange.saved_number:
            exchange.waiting[waiting] = broker.now_ms + LINKED_MS
    _answer(broker)
    _walk(broker)
    _write(broker)


def _tell_written(broker: Broker, items: list[Item]) -> None:
    """Send linked nodes the settings that were made here, and confirm those that were made on other nodes."""
    linked = broker.cluster.linked
    if not linked:
        return
    me = broker.me.id
    mine = [item for item in items if item[4] == me]
    if mine:
        broker.send_all(linked, SETTING, mine)
    states = broker.queue_settings.states
    names = dict.fromkeys(item[0] for item in items)
    if len(names) <= HAVE_MAX:
        # A change that came during the write is left out. It is sent after its own write.
        unsaved = dict.fromkeys(name for name, _ in broker.queue_settings.unsaved)
        have = [(name, states[name].digest) for name in names if name in states and name not in unsaved]
        broker.send_all(linked, SETTINGS_HAVE, have)
    occasion = DIGEST_OF_NEWS if len(names) <= HAVE_MAX else DIGEST_OF_MANY
    broker.send(linked, SETTINGS_DIGEST, (broker.queue_settings.exchange.saved_digest, occasion))


def _compare(broker: Broker) -> None:
    """After a change, note the nodes whose last digest equals ours, because they had the change before us."""
    table = broker.queue_settings
    for node, digest in table.exchange.digests.items():
        if digest == table.digest:
            table.exchange.confirmed[node] = table.number


def _answer(broker: Broker) -> None:
    """Answer the commands whose changes all linked nodes have confirmed, and those that waited long enough."""
    exchange = broker.queue_settings.exchange
    for waiting, until_ms in list(exchange.waiting.items()):
        if until_ms and (until_ms <= broker.now_ms or _is_confirmed(broker, waiting.name)):
            del exchange.waiting[waiting]
            waiting.done(None)


def _is_confirmed(broker: Broker, name: bytes) -> bool:
    """Return whether all linked nodes have this queue's newest settings."""
    table = broker.queue_settings
    state = table.states.get(name)
    if state is None:
        return True
    return all(table.exchange.has_confirmed(state, node) for node in broker.cluster.linked)


# -- other nodes --------------------------------------------------------------------------------------------------


def start(broker: Broker, items: list[Item]) -> None:
    """Start with the settings of the file, after the table of nodes was read.

    If other nodes are known, GETJOB and ADDJOB wait until one has sent its settings. Spec QS5.
    """
    table = broker.queue_settings
    table.load(items)
    exchange = table.exchange
    exchange.saved_number, exchange.saved_digest = table.number, table.digest
    if broker.members():
        exchange.wait_until_ms = broker.now_ms + START_MS


def on_link_up(broker: Broker, node: Node) -> None:
    """Send our digest to a node that joins or was away. After a start, also ask for its settings."""
    table = broker.queue_settings
    exchange = table.exchange
    if node.protocol < ATTEMPTS:
        return  # A node of that version does not know these messages.
    only = broker.sets.only(node)
    exchange.told_lengths.clear()
    if table.states and node not in exchange.walks:  # A node that has asked gets the digest behind all settings.
        broker.send(only, SETTINGS_DIGEST, (exchange.saved_digest, DIGEST_OF_LINK))
    if exchange.wait_until_ms or node in exchange.asking:
        _ask(broker, node)
    if node in exchange.walks:
        exchange.walks[node] = table.all_items()
        _walk(broker)


def ask_all(broker: Broker) -> None:
    """Ask all linked nodes for their settings, because a message names a state that this node does not know."""
    for node in broker.cluster.linked:
        if node.protocol >= ATTEMPTS:
            _ask(broker, node)


def _ask(broker: Broker, node: Node) -> None:
    exchange = broker.queue_settings.exchange
    exchange.asking[node] = None
    broker.send(broker.sets.only(node), ASKSETTINGS, (exchange.saved_digest,))


def on_digest(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Compare the digest of another node's settings with ours, and ask for its settings if necessary."""
    table = broker.queue_settings
    exchange = table.exchange
    for digest, occasion, *_ in items:
        if type(digest) is not int or type(occasion) is not int:
            raise ValueError("a digest of settings that is not a number")
        is_equal = digest == table.digest
        exchange.digests[sender] = digest
        if is_equal:
            exchange.confirmed[sender] = table.number
        if occasion == DIGEST_OF_MANY:
            exchange.told_lengths.clear()
        if is_equal or occasion == DIGEST_OF_ALL:
            exchange.wait_until_ms = 0
            exchange.asking.pop(sender, None)
            if occasion == DIGEST_OF_LINK and sender.is_linked:
                # Only one end of the link may have taken it for a new one. The other end forgot our digest.
                broker.send(broker.sets.only(sender), SETTINGS_DIGEST, (exchange.saved_digest, DIGEST_OF_NEWS))
        elif occasion == DIGEST_OF_LINK:
            # It was asked before, perhaps. Then the answer may be lost with its former link, which we had closed.
            exchange.doubt(sender)
            _ask(broker, sender)
        elif occasion == DIGEST_OF_LOSS:
            if not exchange.suspects:
                exchange.suspect_at_ms = broker.now_ms + COMPARE_MS
            exchange.suspects[sender] = None
    _answer(broker)


def _ask_suspect(broker: Broker) -> None:
    """Ask one node whose settings still differ from ours. The others wait, because one answer is usually enough."""
    table = broker.queue_settings
    exchange = table.exchange
    while exchange.suspects:
        node = next(iter(exchange.suspects))
        del exchange.suspects[node]
        if node.is_linked and exchange.digests.get(node, table.digest) != table.digest:
            exchange.suspect_at_ms = broker.now_ms + COMPARE_MS
            exchange.doubt(node)
            _ask(broker, node)
            return


def on_ask(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Send another node all our settings, a part at a time, unless its settings are the same."""
    table = broker.queue_settings
    exchange = table.exchange
    asked = 0
    for digest, *_ in items:
        if type(digest) is not int:
            raise ValueError("a digest of settings that is not a number")
        asked = digest
    if asked == table.digest:
        exchange.confirmed[sender] = table.number
    else:
        table.exchange.doubt(sender)
    if sender not in exchange.walks:  # A walk in progress sends everything, too.
        exchange.walks[sender] = iter(()) if asked == exchange.saved_digest else table.all_items()
        _walk(broker)
    _answer(broker)


def _walk(broker: Broker) -> None:
    """Send the next part of all settings. Wait if a write is necessary, because only settings on disk may be sent."""
    table = broker.queue_settings
    exchange = table.exchange
    if exchange.is_writing or table.unsaved or exchange.is_void or broker.now_ms < exchange.walk_at_ms:
        return
    count, size = ITEMS_PER_PART, BYTES_PER_PART
    for node, items in list(exchange.walks.items()):
        if not node.is_linked:
            continue  # The walk begins when the node's link is up.
        part: list[Item] = []
        is_over = True
        for item in items:
            part.append(item)
            count -= 1
            size -= len(item[0]) + len(item[2])
            if not count or size < 0:
                is_over = False
                break
        only = broker.sets.only(node)
        broker.send_all(only, SETTING, part)
        if not is_over:
            exchange.walks[node] = exchange.walks.pop(node)  # The next part begins with the other nodes.
            exchange.walk_at_ms = broker.now_ms + PART_MS
            broker.schedule.call_at(exchange.walk_at_ms, partial(_walk, broker))
            return
        del exchange.walks[node]
        broker.send(only, SETTINGS_DIGEST, (exchange.saved_digest, DIGEST_OF_ALL))


def on_setting(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Merge settings of another node. If its version of a setting is older than ours, send it ours."""
    table = broker.queue_settings
    for item in items:
        if not is_item(item):
            raise ValueError("a setting that is not a queue, a field, a value and a version")
        name, field, value, counter, node_id = item[:5]
        if not table.has_room(name, 1, len(field) + len(value)):
            broker.stats.ignored("setting of too many queues")
        elif not table.merge((name, field, value, counter, node_id)):
            _correct(broker, sender, name, field, (counter, node_id, value))
    _compare(broker)
    _write(broker)
    _answer(broker)


def _correct(broker: Broker, sender: Node, name: bytes, field: bytes, theirs: tuple[int, bytes, bytes]) -> None:
    """Send our newer version to the sender of an older one, if ours is on disk. The value decides if they are equal."""
    table = broker.queue_settings
    state = table.states.get(name)
    if state is None or state.number > table.exchange.saved_number:
        return
    known = state.fields.get(field)
    if field != RESET_FIELD and known is not None and (known[1], known[2], known[0]) > theirs:
        broker.send(broker.sets.only(sender), SETTING, (name, field, *known))
    elif state.reset > theirs[:2] or (state.reset == theirs[:2] and field != RESET_FIELD):
        broker.send(broker.sets.only(sender), SETTING, (name, RESET_FIELD, b"", state.reset[0], state.reset[1]))


def on_have(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note that another node has these states on its disk."""
    states = broker.queue_settings.states
    for name, digest, *_ in items:
        if type(name) is not bytes or type(digest) is not int:
            raise ValueError("a state of settings that is not a queue and a number")
        # The node may have learned of a `maxlen` just now. It ignored our length before, so the length is sent again.
        broker.queue_settings.exchange.told_lengths.pop(name, None)
        state = states.get(name)
        if state is not None and state.digest == digest:
            state.confirmed[sender] = broker.queue_settings.exchange.doubts.get(sender, 0)
    _answer(broker)


def forget_node(broker: Broker, node: Node) -> None:
    """Forget the lengths that a node has sent, and that it was asked, because its link broke or the node is gone.

    The answer may be lost with the link. On its next link, the node sends its digest, and is asked again if necessary.
    Changes that the node made may have reached only some of the others, so these compare their settings. Spec QS4.
    """
    exchange = broker.queue_settings.exchange
    exchange.compare_at_ms = broker.now_ms + COMPARE_MS
    exchange.asking.pop(node, None)
    for lengths in exchange.lengths.values():
        lengths.pop(node, None)


def on_run_over(broker: Broker, node: Node) -> None:
    """Forget the state of the exchange with a node's process that has ended or left the table of nodes."""
    exchange = broker.queue_settings.exchange
    forget_node(broker, node)
    exchange.walks.pop(node, None)
    exchange.digests.pop(node, None)
    exchange.suspects.pop(node, None)
    if not broker.cluster.find(node.id):
        exchange.confirmed.pop(node, None)


# -- time ---------------------------------------------------------------------------------------------------------


def step(broker: Broker) -> None:
    """Do the work that is due. Called ten times a second."""
    table = broker.queue_settings
    exchange = table.exchange
    if exchange.wait_until_ms and exchange.wait_until_ms <= broker.now_ms:
        exchange.wait_until_ms = 0
    if exchange.retry_at_ms and exchange.retry_at_ms <= broker.now_ms:
        exchange.retry_at_ms = 0
        _write(broker)
    if exchange.compare_at_ms and exchange.compare_at_ms <= broker.now_ms:
        exchange.compare_at_ms = 0
        if table.states:
            nodes = tuple(node for node in broker.cluster.linked if node.protocol >= ATTEMPTS)
            broker.send(nodes, SETTINGS_DIGEST, (exchange.saved_digest, DIGEST_OF_LOSS))
    if exchange.suspects and exchange.suspect_at_ms <= broker.now_ms:
        _ask_suspect(broker)
    if exchange.walks:
        _walk(broker)
    if exchange.waiting:
        _answer(broker)
    if table.limited and broker.cluster.linked:
        _tell_lengths(broker)


def _tell_lengths(broker: Broker) -> None:
    """Send the changed lengths of the next part of the queues with `maxlen`. A round over all takes about a second."""
    table = broker.queue_settings
    exchange = table.exchange
    told = exchange.told_lengths
    if broker.now_ms - exchange.length_round_ms >= ROUND_MS:
        exchange.length_round_ms = broker.now_ms
        for name in [name for name in exchange.lengths if name not in table.limited]:
            del exchange.lengths[name]
        exchange.length_walk = iter(list(table.limited))
    changed: list[tuple[bytes, int]] = []
    for name in islice(exchange.length_walk, max(LENGTHS_MIN, len(table.limited) // LENGTH_STEPS)):
        queue = broker.queues.get(name)
        length = queue.pending if queue is not None else 0
        if name not in told or told[name] != length:
            told[name] = length
            changed.append((name, length))
    broker.send_all(broker.cluster.linked, QLENGTHS, changed)


def on_lengths(broker: Broker, sender: Node, items: list[Any]) -> None:
    """Note how many pending jobs of queues with `maxlen` another node has."""
    table = broker.queue_settings
    for name, length, *_ in items:
        if type(name) is not bytes or type(length) is not int or not 0 <= length <= COUNTER_MAX:
            raise ValueError("a length of a queue that is not a name and a number")
        if name in table.limited:
            table.exchange.lengths.setdefault(name, {})[sender] = length


def pending(broker: Broker, name: bytes) -> int:
    """Return the number of pending jobs of a queue in the cluster, as far as this node knows."""
    queue = broker.queues.get(name)
    lengths = broker.queue_settings.exchange.lengths.get(name)
    here = queue.pending if queue is not None else 0
    return here + sum(lengths.values()) if lengths else here
