"""CONFIG: directives in force. Spec R8, D4.

A SET changes the settings, then puts the change into effect: in the process through `broker.host`, in the broker here.
If that fails, the old value is restored and the client gets the reason. So CONFIG GET always shows values in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from disque_py.commands import user_changes
from disque_py.commands.subcommands import Form, text_of
from disque_py.config.settings import DirectiveError
from disque_py.core import deferred_reply, memory
from disque_py.core.broker import Broker
from disque_py.core.broker_parts import done_kept_ms
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.log_lines import tell
from disque_py.resp.replies import OK, bulk, pairs

if TYPE_CHECKING:
    from collections.abc import Callable

# All directives are shorter than this. Matching a longer pattern would only cost time.
PATTERN_BYTES_MAX: Final = 1_024


def config(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """CONFIG GET pattern | SET directive value | RESETSTAT | REWRITE."""
    form = FORMS.get(argv[1].lower())
    if form is None:
        raise CommandError("ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE")
    if not form.accepts(argv):
        raise CommandError(f"ERR Wrong number of arguments for CONFIG {text_of(argv[1])}")
    return form.handler(broker, client, argv)


def _get(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """GET pattern: names and values; a map after HELLO 3."""
    if len(argv[2]) > PATTERN_BYTES_MAX:
        return pairs([], client.protocol)
    found = broker.settings.matching(text_of(argv[2]))
    return pairs([(name, bulk(value)) for name, value in found], client.protocol)


def _set(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    name = text_of(argv[2])
    settings = broker.settings
    try:
        old = settings.set_text(name, [text_of(argv[3])], "set")
    except DirectiveError as refused:
        raise CommandError(refused.text) from None
    try:
        broker.host.apply_setting(name.lower())
    except DirectiveError as refused:
        settings.restore(name, old)
        raise CommandError(refused.text) from None
    effect = EFFECTS.get(name.lower())
    if effect is not None:
        effect(broker)
    if name.lower() == "requirepass":
        user_changes.end_strangers(broker, client)
    return OK


def _resetstat(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """RESETSTAT: reset INFO's counters in stats, jobs and commandstats. Those of the bus go on (CLUSTER INFO)."""
    stats = broker.stats
    messages_received = stats.messages_received
    stats.reset()
    stats.messages_received = messages_received
    for row in broker.commands.values():
        row.calls = row.nanoseconds = 0
    return OK


def _rewrite(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    if not broker.host.has_config_file():
        raise CommandError("ERR The server is running without a config file")
    return deferred_reply.begin(broker, client, broker.host.rewrite_config, _rewritten)


def _rewritten(failure: OSError | None) -> bytes:
    if failure is not None:
        raise CommandError(f"ERR Rewriting config file: {failure.strerror or failure}")
    return OK


# -- effects of a change on the broker -------------------------------------------------------------


def _maxmemory_changed(broker: Broker) -> None:
    """Compute new marks. Jobs above them are evicted immediately, as far as that is safe (memory.py)."""
    broker.apply_maxmemory()
    limit = broker.settings.maxmemory
    if limit and broker.used_memory > limit:
        tell(broker.host, "maxmemory-below-use", maxmemory=limit, used=broker.used_memory)
    memory.make_room(broker)


def _node_timeout_changed(broker: Broker) -> None:
    timeout_ms = broker.settings.cluster_node_timeout
    broker.membership.node_timeout_ms = timeout_ms
    broker.tombstones.keep_ms = broker.ends.keep_ms = broker.acks.not_held.keep_ms = done_kept_ms(timeout_ms)


def _place_changed(broker: Broker) -> None:
    """Tell other nodes where this node is. Spec ZN1."""
    broker.membership.set_place(broker.settings.datacenter, broker.settings.zone)


def _slowlog_max_len_changed(broker: Broker) -> None:
    broker.stats.trim_slowlog(broker.settings.slowlog_max_len)


EFFECTS: Final[dict[str, Callable[[Broker], None]]] = {
    "maxmemory": _maxmemory_changed,
    "maxmemory-policy": _maxmemory_changed,
    "cluster-node-timeout": _node_timeout_changed,
    "datacenter": _place_changed,
    "zone": _place_changed,
    "slowlog-max-len": _slowlog_max_len_changed,
}

FORMS: Final = {
    b"get": Form(_get, 3, 3),
    b"set": Form(_set, 4, 4),
    b"resetstat": Form(_resetstat, 2, 2),
    b"rewrite": Form(_rewrite, 2, 2),
}
