"""COMMAND: describes the commands. Spec R8.

All of it comes from table.py, which imports this module; hence the late imports. Commands that rename-command removed
are not shown. Renamed ones are found under their new name and described under the original one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from disque_py.commands.arguments import Argument, choice_of, subcommands_of
from disque_py.commands.subcommands import ANY, Form, form_of
from disque_py.core import incremental
from disque_py.core.broker import Broker
from disque_py.core.client import Client
from disque_py.core.errors import CommandError
from disque_py.core.incremental import PART
from disque_py.resp.replies import array, bulk, bulk_array, integer, nil_bulk, simple

if TYPE_CHECKING:
    from disque_py.commands.table import Command

WRONG_FORM: Final = "ERR Unknown subcommand or wrong number of arguments."


def command(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """COMMAND | COMMAND COUNT | INFO name ... | DOCS [name ...] | LIST | GETKEYS command ..."""
    if len(argv) == 1:
        return array(_entry(each, client.protocol) for each in _in_force(broker))
    form = form_of(FORMS, argv)
    if form is None:
        raise CommandError(WRONG_FORM)
    return form.handler(broker, client, argv)


def forms_of(command: Command) -> list[str]:
    """Return the command's syntax, one text per form. Each begins with its name in capitals."""
    name = command.name.upper()
    return [f"{name} {form}".rstrip() for form in command.syntax.split("\n")]


def _in_force(broker: Broker) -> list[Command]:
    """Return the commands in force, in the order of the table."""
    from disque_py.commands.table import COMMANDS

    names = {row.name for row in broker.commands.values()}
    return [each for each in COMMANDS if each.name in names]


def _found(broker: Broker, word: bytes) -> Command | None:
    row = broker.commands.get(word) or broker.commands.get(word.lower())
    if row is None:
        return None
    return _by_name()[row.name]


@lru_cache(maxsize=1)
def _by_name() -> dict[str, Command]:
    from disque_py.commands.table import COMMANDS

    return {each.name: each for each in COMMANDS}


def _entry(command: Command, protocol: int) -> bytes:
    """Return name, arity, flags, and three zeros, since no argument is a key.

    In RESP3 the ACL categories follow, of all subcommands. Redis has had these as long as RESP3: redis-py expects them.
    """
    flags = array(simple(flag) for flag in command.flags)
    fields = (bulk(command.name), integer(command.arity), flags, integer(0), integer(0), integer(0))
    if protocol != 3:
        return array(fields)
    return array((*fields, array([simple(f"@{name}") for name in command.access.categories])))


def _count(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return integer(len(_in_force(broker)))


def _info(broker: Broker, client: Client, argv: list[bytes]) -> bytes | None:
    """INFO name ...: an entry for each name, nil for those that are unknown."""
    return incremental.begin(broker, client, _info_in_parts(broker, client, argv))


def _info_in_parts(broker: Broker, client: Client, argv: list[bytes]) -> incremental.Steps:
    entries: list[bytes] = []
    nil = nil_bulk(client.protocol)
    for at in range(2, len(argv), PART):
        if at > 2:
            yield
        found = [_found(broker, word) for word in argv[at : at + PART]]
        entries += [nil if each is None else _entry(each, client.protocol) for each in found]
    return array(entries)


def _list(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    return bulk_array(each.name for each in _in_force(broker))


def _docs(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """DOCS [name ...]: each name, then its description as names and values. Unknown names are left out.

    Repeated names are left out, too: a map has each name once, and the reply must be bounded.
    """
    asked = dict.fromkeys([each for word in argv[2:] if (each := _found(broker, word)) is not None])
    shown = _in_force(broker) if len(argv) == 2 else list(asked)
    return array(part for each in shown for part in (bulk(each.name), _docs_entry(each)))


@lru_cache(maxsize=256)
def _docs_entry(command: Command) -> bytes:
    """Return summary, since, group and syntax, and arguments or subcommands for programs that know those of Redis."""
    fields = [*_docs_fields(command), bulk("syntax"), bulk_array(forms_of(command))]
    forms = command.syntax.split("\n")
    subcommands = subcommands_of(forms)
    if subcommands:
        entries = [
            part
            for name, rests in subcommands.items()
            for part in (
                bulk(f"{command.name}|{name}"),
                array([*_docs_fields(command), *_arguments_field(choice_of(rests))]),
            )
        ]
        fields += [bulk("subcommands"), array(entries)]
    else:
        fields += _arguments_field(choice_of(forms))
    return array(fields)


def _docs_fields(command: Command) -> list[bytes]:
    texts = (("summary", command.summary), ("since", command.since), ("group", command.group))
    return [bulk(part) for pair in texts for part in pair]


def _arguments_field(arguments: tuple[Argument, ...]) -> list[bytes]:
    return [bulk("arguments"), array(map(_argument, arguments))] if arguments else []


def _argument(argument: Argument) -> bytes:
    """Return an argument as names and values. Empty ones are left out, as in Redis."""
    fields = [bulk("name"), bulk(argument.name), bulk("type"), bulk(argument.kind)]
    if argument.text:
        fields += [bulk("display_text"), bulk(argument.text)]
    if argument.token:
        fields += [bulk("token"), bulk(argument.token)]
    if argument.flags:
        fields += [bulk("flags"), array(map(simple, argument.flags))]
    return array([*fields, *_arguments_field(argument.parts)])


def _getkeys(broker: Broker, client: Client, argv: list[bytes]) -> bytes:
    """GETKEYS command ...: reply that there are no keys, in the words that cluster-aware proxies expect."""
    if _found(broker, argv[2]) is None:
        raise CommandError("ERR Invalid command specified")
    raise CommandError("ERR The command has no key arguments")


FORMS: Final = {
    b"count": Form(_count, 2, 2),
    b"info": Form(_info, 3, ANY),
    b"docs": Form(_docs, 2, ANY),
    b"list": Form(_list, 2, 2),
    b"getkeys": Form(_getkeys, 3, ANY),
}
