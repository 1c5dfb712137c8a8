"""One library for each purpose: the client library connects to nodes, and click reads command lines.

The tables name the modules with an exception, each with its reason. An entry that is no longer needed fails, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

PROGRAMS = ("disque_py/cli/", "disque_py/gateway/", "disque_py/integrations/", "disque_py/spark/", "disque_py/tasks/")
OPENERS = {"create_connection", "open_connection", "open_unix_connection", "sock_connect", "socket"}
PARSERS = {"argparse", "getopt", "optparse"}
ESCAPE = "\x1b"

MAY_CONNECT = {
    "disque_py/cli/connection.py": "the raw terminal's connection, which speaks RESP3 and sends any words",
    "disque_py/cli/bench/load.py": "a generator of load, also for other servers and protocols",
    "disque_py/cli/bench/processes.py": "questions to those other servers",
}
MAY_SPEAK_RESP = {
    "disque_py/cli/bench/dialects.py": "requests and replies of other servers, too",
    "disque_py/cli/bench/processes.py": "questions to those other servers",
    "disque_py/cli/shell/pipe.py": "the raw terminal, for bytes as they come",
}
MAY_SPLIT_FIELDS = {
    "disque_py/cli/bench/proc.py": "files of /proc",
}
MAY_SPLIT_ADDRESSES = {
    "disque_py/cli/address.py": "forms that people type at a prompt",
    "disque_py/gateway/rpc/calls.py": "names of callers, as gRPC writes them",
}
MAY_PARSE_ARGUMENTS = {
    "disque_py/integrations/django/management/commands/disque_worker.py": "Django hands the parser in",
}
MAY_WRITE_METRICS = {
    "disque_py/gateway/metrics/exposition.py": "16 times faster than with objects, as it says",
}
MAY_WRITE_ESCAPES = {
    "disque_py/cli/shell/latency.py": "a line that is written again and again, as redis-cli does",
    "disque_py/cli/shell/lines.py": "the word `clear`, as in redis-cli",
    "disque_py/spark/index_tables.py": "colours are taken out of another library's messages",
}


def test_programs_reach_nodes_through_the_client_library(modules):
    """A second class of connections would have its own time limits, login, TLS and errors."""
    found = {module.name for module in programs(modules) if set(called(module.tree)) & OPENERS}
    assert found == set(MAY_CONNECT)


def test_programs_leave_the_wire_format_to_the_client_library(modules):
    """Only the client library uses hiredis."""
    assert {module.name for module in programs(modules) if "hiredis" in imported(module.tree)} == set(MAY_SPEAK_RESP)


def test_programs_leave_the_fields_of_info_to_the_client_library(modules):
    """`client.results.info` reads INFO and CLUSTER INFO, `client.results.cluster_nodes` reads CLUSTER NODES."""
    found = {
        module.name
        for module in programs(modules)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if "splitlines" in called(node) and splits_at_colon(node, {"split", "partition"})
    }
    assert found == set(MAY_SPLIT_FIELDS)


def test_programs_leave_addresses_to_the_client_library(modules):
    """`client.parse_address` and `client.parse_url` know IPv6, unix sockets and the default port."""
    found = {module.name for module in programs(modules) if splits_at_colon(module.tree, {"rsplit", "rpartition"})}
    assert found == set(MAY_SPLIT_ADDRESSES)


def test_command_lines_are_read_by_click(modules):
    """`disque-cli` and `disque-server` read their words as redis-cli and redis-server do, without a library."""
    found = {module.name for module in modules if PARSERS & set(imported(module.tree))}
    assert found == set(MAY_PARSE_ARGUMENTS)


def test_colours_come_from_rich_or_click(modules):
    """Both leave colours out if the output is not a terminal."""
    found = {m.name for m in modules if any(ESCAPE in text or r"\x1b" in text for text in constants(m.tree))}
    assert found == set(MAY_WRITE_ESCAPES)


def test_pages_of_metrics_come_from_prometheus_client(modules):
    """Its encoders know both formats."""
    found = {m.name for m in modules if any(text.startswith(("# HELP ", "# TYPE ")) for text in constants(m.tree))}
    assert found == set(MAY_WRITE_METRICS)


def programs(modules):
    """Return the modules that use nodes from outside."""
    return [module for module in modules if module.name.startswith(PROGRAMS)]


def called(tree: ast.AST) -> Iterator[str]:
    """Return the names of called functions and methods, without the part before the last dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            yield node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id


def constants(tree: ast.AST) -> Iterator[str]:
    """Return the texts in a module, including docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def splits_at_colon(tree: ast.AST, methods: set[str]) -> bool:
    """Return whether a text is split at a colon by one of these methods."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == ":"
        for node in ast.walk(tree)
    )


def imported(tree: ast.AST) -> set[str]:
    """Return the top-level names of the packages that a module imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found
