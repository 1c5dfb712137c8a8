"""The format of events is defined once: event_format.py has its names, codes and layout; other modules import them."""

from __future__ import annotations

import ast

import pytest

from disque_py import event_format

HOME = "disque_py/event_format.py"
STATES = {name for name in event_format.STATUS_NAMES if name}
EVENTS = {name for name, _ in event_format.CODES.values()}
NUMBERS = {
    name: value
    for name, value in vars(event_format).items()
    if name.isupper() and not name.startswith("_") and type(value) is int
}
# core/job.py has its own states, which are not codes.
STATES_OF_JOBS = {("disque_py/core/job.py", name) for name in ("QUEUED", "ACKED")}
# A list with this many of the names is a copy. Counters of jobs share a few words with events.
STATES_MIN = 3
EVENTS_MIN = 5


# Figures of a queue that are named after states: QSTAT and QLEN count jobs by them.
COUNTED = (
    "disque_py/commands/queues.py",
    "disque_py/commands/shares.py",
    "disque_py/core/census.py",
    "disque_py/cli/queue_display.py",
    "disque_py/cli/admin/queue_commands.py",
    "disque_py/client/dyno.py",
    "disque_py/gateway/actions/queues.py",
    "disque_py/gateway/answers.py",
    "disque_py/gateway/console/pages.py",
    "disque_py/gateway/operations.py",
)


def in_sql(text):
    """Return the number of names of states in SQL's quotes in a text."""
    return sum(f"'{state}'" in text for state in STATES)


def repetitions(name, tree):
    """Yield each place of a module that repeats a part of the format."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            words = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
            if (len(words & STATES) >= STATES_MIN and name not in COUNTED) or len(words & EVENTS) >= EVENTS_MIN:
                yield f"{name}:{node.lineno}: names of states or events"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and in_sql(node.value) >= STATES_MIN:
            yield f"{name}:{node.lineno}: names of states in SQL"
        elif isinstance(node, ast.Constant) and node.value == event_format.BLOCK_HEAD.format:
            yield f"{name}:{node.lineno}: the head of a block"
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                known = ast.unparse(target).removeprefix("_").removeprefix("CODE_")
                if known in NUMBERS and node.value.value == NUMBERS[known] and (name, known) not in STATES_OF_JOBS:
                    yield f"{name}:{node.lineno}: {known}"


def test_no_module_repeats_a_part_of_the_format_of_events(modules):
    assert [found for m in modules if m.name != HOME for found in repetitions(m.name, m.tree)] == []


@pytest.mark.parametrize(
    "text",
    [
        "_CODE_ADDED: Final = 1",
        "PENDING = 2",
        'STATES = (None, "invisible", "pending", "running")',
        'CODES = {1: ("added", 2), 2: ("delivered", 3), 3: ("acked", 4), 6: ("queued", 2), 7: ("requeued", 2)}',
        "sql = \"to_state IN ('pending', 'running', 'invisible')\"",
        'head = struct.Struct("<IIQQ")',
    ],
)
def test_a_repeated_part_of_the_format_is_found(text):
    assert list(repetitions("some.py", ast.parse(text)))
