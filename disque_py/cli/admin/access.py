"""The node that disque-admin talks to, and its errors with the next step.

The options are those of disque-cli (`-h`, `-p`, `-u`, `-a`), so that people need to learn them only once. Each command
uses one connection to one node. That node does the work on the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from disque_py.cli.address import HOST_DEFAULT, PORT_DEFAULT, Target, Tls, parse_target
from disque_py.cli.cluster.view import LoginError, patient
from disque_py.cli.connection import ConnectError, TlsFileError
from disque_py.cli.misplaced_options import with_place
from disque_py.cli.queue_view import ANSWER_S
from disque_py.cli.visible_errors import VisibleErrors
from disque_py.client import Address, ConnectionLostError, DisqueError, ReplyError, commands
from disque_py.client.one_node import OneNode
from disque_py.output_errors import is_output_error
from disque_py.shell_scripts import is_plain

# Completion with TAB waits at most this long for a node.
COMPLETION_S: Final = 0.5

# The beginning of an error, and the next step.
ADVICE: Final = (
    ("NOAUTH", "Pass the password with -a, or in the environment variable DISQUECLI_AUTH"),
    ("WRONGPASS", "Check -a, --user and the environment variable DISQUECLI_AUTH"),
    ("NOPERM", "The user may not do this. An operator can find the reason with `disque-cli ACL DRYRUN USER COMMAND …`"),
    ("LIMIT", "The user has reached its limit on this node: wait, or ask an operator to raise it (docs/users.md)"),
    ("DENIED", "Run the command on the node's own machine, or see protected-mode in docs/operations.md"),
    ("ERR not while node", "Upgrade that node first, or remove it from the cluster with `disque-cluster remove-node`"),
    (
        "ERR unknown command",
        "This server is too old for the command, or is not disque-py: see `disque-cli INFO server`",
    ),
    ("ERR unknown queue setting", "`disque-admin queue show NAME` lists the settings of this server"),
    ("BADID", "A job id has 40 characters and begins with D-; `disque-admin job peek QUEUE` shows ids"),
    ("OOM", "The node's memory is full: see `disque-cli INFO memory` and maxmemory in docs/operations.md"),
    ("PAUSED", "`disque-admin queue resume NAME` ends the pause"),
    ("UNREACHABLE", "Repeat the command when all nodes are linked: see `disque-cluster status <node>`"),
    (
        "NOREPL",
        "Fewer nodes are reachable than copies are requested: see `disque-cluster check <node>`, or use --replicate 1",
    ),
    ("MAXLEN", "The queue has reached its `maxlen`: see `disque-admin queue show NAME`"),
    ("TOOBIG", "`disque-admin queue set NAME maxsize=<bytes>` changes the limit"),
    ("NOKEY", "Add the pair with --meta NAME=VALUE"),
    ("LOADING", "The node reads its journal; repeat the command soon"),
    ("MISCONF", "The node can't write its journal: see its log, and docs/journal.md"),
)


def advised(error: Exception) -> str:
    """Return an error with the next step, if there is one."""
    text = str(error)
    advice = next((step for start, step in ADVICE if text.startswith(start)), "")
    return f"{text}\n{advice}." if advice else text


class Program(VisibleErrors):
    """The command group; turns expected errors into lines with the next step, and exit status 1."""

    def run(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().run(ctx)
        except click.NoSuchOption as error:
            raise with_place(error, self) from error
        except (LoginError, TlsFileError) as error:
            raise click.ClickException(f"{error}.") from error
        except ConnectError as error:
            raise click.ClickException(f"{error}\nName a node with -h and -p, or -u disque://host:port.") from error
        except ReplyError as error:
            raise click.ClickException(advised(error)) from error
        except ConnectionLostError as error:
            raise click.ClickException(f"The connection broke: {error}. The command may have been executed.") from error
        except DisqueError as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            if is_output_error(error):
                raise
            raise click.ClickException(error.strerror or str(error)) from error


def target_of(words: dict[str, Any]) -> Target:
    """Return the node of the options. Raises click.UsageError."""
    has_tls_files = bool(words["cacert"] or words["cert"] or words["key"] or words["insecure"])
    try:
        url = parse_target(words["url"]) if words["url"] else None
    except ValueError as error:
        raise click.UsageError(f"-u: {error}") from error
    is_tls = words["tls"] or (url is not None and url.tls is not None)
    if has_tls_files and not is_tls:
        raise click.UsageError("--cacert, --cert, --key and --insecure need --tls")
    if words["key"] and not words["cert"]:
        raise click.UsageError("--key needs --cert")
    tls = Tls(words["cacert"], words["cert"], words["key"], words["insecure"])
    base = url or Target(Address(words["host"], words["port"]))
    return replace(
        base,
        user=words["user"] or base.user,
        password=words["password"] or base.password,
        tls=tls.over(base.tls) if is_tls else None,
        connect_timeout_s=words["timeout"],
    )


def open_node(ctx: click.Context, answer_s: float = ANSWER_S) -> OneNode:
    """Connect to the node of the command line. Raises ConnectError, ReplyError."""
    target: Target = ctx.obj
    return patient(target, answer_s)


def complete_queue(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the node's queues whose names begin with the text; none if the node does not answer in time.

    Names that a shell would not take as they are are left out.
    """
    return [CompletionItem(name) for name in sorted(_names(ctx)) if name.startswith(begun) and is_plain(name)]


def _names(ctx: click.Context) -> Iterable[str]:
    root = ctx.find_root()
    found: set[str] = set()
    with suppress(ConnectError, DisqueError, click.UsageError, KeyError):
        target = replace(target_of({**OPTION_DEFAULTS, **root.params}), connect_timeout_s=COMPLETION_S)
        with patient(target) as node:
            _, names = node.run(commands.qscan_page(0, count=1000))
            found.update(names)
            with_settings = node.run(commands.queues_with_settings())
            found.update(with_settings)
    return found


OPTION_DEFAULTS: Final = {
    "host": HOST_DEFAULT,
    "port": PORT_DEFAULT,
    "url": "",
    "user": "",
    "password": "",
    "timeout": None,
    "tls": False,
    "cacert": "",
    "cert": "",
    "key": "",
    "insecure": False,
}
