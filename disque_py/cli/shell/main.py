"""disque-cli: one command, an interactive shell, or one of the modes that watch a node.

This is the entry point: it reads the options, chooses the mode, and turns every failure into a line and an exit status.
The status is 0 after a reply, 1 after an error reply (the original says 0) or a failure, and 130 when interrupted while
waiting for a reply.

Scripts run it often. So a module that loads slowly and serves one mode is imported only in that mode.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from disque_py import __version__
from disque_py.cli.connection import ConnectError, Connection, ConnectionLostError, reason_of
from disque_py.cli.shell import health, latency, scanning, shell_completion, stat
from disque_py.cli.shell import options as modes
from disque_py.cli.shell.command_docs import NoHelpError, builtin_docs, docs_of, help_text
from disque_py.cli.shell.formats import FORMATTED, JSON, RAW, Style, name_shower
from disque_py.cli.shell.lines import obey
from disque_py.cli.shell.options import FLAGS, USAGE, VALUES, ShellOptions, UsageError, parse_options
from disque_py.cli.shell.session import Session
from disque_py.cli.shell.shell_completion import ASK_VARIABLE
from disque_py.cli.shell.suggestions import closest
from disque_py.cli.visible import visible, visible_lines
from disque_py.output_errors import end_output, is_output_error

INTERRUPTED_STATUS = 130
# The time that `help` waits for the server's docs. The built-in ones are nearly the same.
HELP_PATIENCE_S = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run disque-cli with these arguments, by default those of the process. Return the exit status."""
    _prepare_streams()
    try:
        words = sys.argv[1:] if argv is None else argv
        status = _answer_shell(words) if ASK_VARIABLE in os.environ else _run(parse_options(words, os.environ))
        sys.stdout.flush()
    except (UsageError, ConnectError, NoHelpError) as error:
        print(visible_lines(str(error)), file=sys.stderr)
        return 1
    except ConnectionLostError as error:
        print(f"Error: {visible_lines(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:
        if is_output_error(error):
            return end_output(error)
        print(f"Error: {visible_lines(reason_of(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED_STATUS
    return status


def _prepare_streams() -> None:
    """Replace closed streams by empty ones, and show a character that the locale lacks as `\\u2192`."""
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.FileIO(os.devnull, "r"))
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(os.devnull, "w"))
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(os.devnull, "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(options: ShellOptions) -> int:
    if options.mode is modes.HELP:
        print(USAGE.format(version=__version__), end="")
        return 0
    if options.mode is modes.VERSION:
        print(f"disque-cli {__version__}")
        return 0
    if options.mode is modes.COMPLETION:
        print(shell_completion.script(options.completion_shell), end="")
        return 0
    if options.mode is not modes.COMMANDS:
        return _run_mode(options)
    if is_following(options.words):
        return _follow(options)
    session = Session(options.target(), _style(options), sys.stdout.buffer)
    try:
        if options.words:
            try:
                status = _run_command(options, session)
            except ConnectError as error:
                advice = _place_of_options(options.words)
                raise ConnectError(f"{error}. {advice}" if advice else str(error)) from error
            if status and (advice := _place_of_options(options.words)):
                print(advice, file=sys.stderr)
            return status
        if sys.stdin.isatty():
            from disque_py.cli.shell.interactive import converse  # It takes as long to load as all the rest.

            return converse(session, options.interval_s or 0.0)
        return obey(session, sys.stdin.buffer, options.interval_s or 0.0)
    finally:
        session.drop()


def _answer_shell(words: Sequence[str]) -> int:
    """Print the completions for a shell's completion script."""
    for word in shell_completion.answers(words, os.environ):
        print(word)
    return 0


def _style(options: ShellOptions) -> Style:
    on_terminal = sys.stdout.isatty() or "FAKETTY" in os.environ
    return Style(options.format or (FORMATTED if on_terminal else RAW), options.delimiter)


def _run_command(options: ShellOptions, session: Session) -> int:
    words = [os.fsencode(word) for word in options.words]
    if words[0].lower() in (b"help", b"?"):
        print(_help(options, options.words[1:], with_colour=session.style.format is FORMATTED))
        return 0
    _refuse_misspelled_follow(options.words)
    if options.stdin_last:
        words.append(sys.stdin.buffer.read())
    elif options.stdin_tag is not None:
        body = sys.stdin.buffer.read()
        words = [body if word == options.stdin_tag else word for word in words]
    repeat = 1 if options.repeat is None else options.repeat
    return 0 if session.run_repeatedly(words, repeat, options.interval_s or 0.0) else 1


def _place_of_options(words: list[str]) -> str:
    """Return advice for a command that failed and has an option of this program among its arguments; else nothing."""
    word = next((word for word in words[1:] if word in FLAGS or word in VALUES), None)
    if word is None:
        return ""
    return f"If {word} is an option of disque-cli, put it before the command: disque-cli {word} … {words[0]}"


def _help(options: ShellOptions, words: list[str], *, with_colour: bool) -> str:
    """Return help from the server, or the built-in help, because help must work without a server."""
    docs = builtin_docs()
    try:
        patience_s = options.timeout_s or HELP_PATIENCE_S
        connection = Connection.open(replace(options.target(), connect_timeout_s=patience_s, read_timeout_s=patience_s))
    except ConnectError:
        return help_text(docs, words, with_colour=with_colour)
    try:
        docs = docs_of(connection)
    except ConnectionLostError:
        pass
    finally:
        connection.close()
    return help_text(docs, words, with_colour=with_colour)


def _run_mode(options: ShellOptions) -> int:
    """Run a mode. Modes without an end are ended by Ctrl-C, which is no failure."""
    target = options.target()
    if options.mode is modes.HEALTH:
        return _report_health(options)
    try:
        if options.mode is modes.INTRINSIC_LATENCY:
            latency.measure_intrinsic(options.intrinsic_s, lambda line: print(line, flush=True))
            return 0
        if options.mode is modes.STAT:
            lines = -1 if options.repeat is None else options.repeat
            return 0 if stat.watch(target, options.interval_s, lines, as_json=options.format is JSON) else 1
        if options.mode is modes.QUEUES:
            return _watch_queues(options)
        connection = Connection.open(target)
        try:
            return _run_over(connection, options)
        finally:
            connection.close()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 0


def _watch_queues(options: ShellOptions) -> int:
    from disque_py.cli.shell import queues  # It imports rich, which most commands don't need.

    looks = 1 if options.is_once else -1 if options.repeat is None else options.repeat
    as_json = options.format is JSON
    is_good = queues.watch(options.target(), options.pattern, options.interval_s, looks, as_json=as_json)
    return 0 if is_good else 1


def _report_health(options: ShellOptions) -> int:
    address, as_json = str(options.target().address), options.format is JSON
    try:
        told = health.check_health(options.target())
    except health.UnhealthyError as error:
        print(
            json.dumps({"address": address, "healthy": False, "reason": str(error)}) if as_json else visible(str(error))
        )
        return 1
    print(json.dumps({"address": address, "healthy": True, "leaving": told.is_leaving}) if as_json else told)
    return 0


def _follow(options: ShellOptions) -> int:
    """Run `events --follow` until Ctrl-C."""
    from disque_py.cli.shell import following

    style = _style(options)
    try:
        following.follow(
            options.target(),
            lambda line: print(line, flush=True),
            lambda line: print(line, file=sys.stderr, flush=True),
            is_short=style.format is FORMATTED,
        )
    except following.RefusedError as error:
        print(visible_lines(str(error)), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
    return 0


def is_following(words: Sequence[str]) -> bool:
    """Return whether this is `events --follow`, which is not a command of the server."""
    return len(words) == 2 and words[0].lower() == "events" and words[1] in ("--follow", "-f")


def _refuse_misspelled_follow(words: Sequence[str]) -> None:
    """Raise UsageError for an option of `events` that does not exist. EVENTS of the server takes no options."""
    if words[0].lower() == "events" and len(words) > 1 and words[1].startswith("--"):
        if words[1] == "--follow":
            advice = _place_of_options(["events --follow", *words[2:]]) or "Options of disque-cli precede the command"
            raise UsageError(f"events --follow takes no words after it, but has '{words[2]}'. {advice}")
        meant = ". Did you mean '--follow'?" if closest(words[1], ["--follow"]) else "; there is --follow"
        raise UsageError(f"events has no option '{words[1]}'{meant}")


def _run_over(connection: Connection, options: ShellOptions) -> int:
    """Run a mode that keeps one connection."""
    for warning in connection.warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    if options.mode is modes.PIPE:
        return _feed(connection, options.pipe_timeout_s)
    pause_s = options.interval_s or 0.0
    style = _style(options)
    try:
        if options.mode is modes.SCAN:
            show = name_shower(style.format)
            scanning.scan(connection, options.pattern, pause_s, show=show, write=sys.stdout.buffer.write)
        elif options.mode is modes.BIGQUEUES:
            report = scanning.big_queues(connection, options.pattern, pause_s)
            print(json.dumps(report.as_object()) if style.format is JSON else "\n".join(report.lines()))
        else:
            with_history = options.mode is modes.LATENCY_HISTORY
            on_terminal = style.format is FORMATTED
            latency.measure(
                connection,
                with_history=with_history,
                every_s=options.interval_s,
                on_terminal=on_terminal,
                as_json=style.format is JSON,
            )
    except scanning.RefusedError as error:
        print(visible_lines(str(error)), file=sys.stderr)
        return 1
    return 0


def _feed(connection: Connection, timeout_s: float) -> int:
    from disque_py.cli.shell.pipe import Feed  # It imports TLS, which most commands don't need.

    feed = Feed(connection, lambda line: print(visible(line), file=sys.stderr))
    try:
        is_good = feed.run(sys.stdin.fileno(), timeout_s)
    finally:
        print(f"errors: {feed.errors}, replies: {feed.replies}", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
