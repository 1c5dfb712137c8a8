"""names.py: names that a node knows, for completion."""

from __future__ import annotations

from disque_py.cli.address import Target
from disque_py.cli.shell.candidates import DIRECTIVES, QUEUES
from disque_py.cli.shell.names import NodeNames
from disque_py.client import Address


def names_of(port):
    return NodeNames(lambda: Target(Address("127.0.0.1", port)))


def test_queues_and_directives_come_from_the_node(scripted):
    node = scripted(
        {
            "QSCAN": b"*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n",
            "CONFIG GET": b"*2\r\n$4\r\nport\r\n$4\r\n7711\r\n",
        }
    )
    assert names_of(node.port)(QUEUES) == [b"a", b"b"]
    assert names_of(node.port)(DIRECTIVES) == [b"port"]


def test_a_node_that_refuses_or_is_away_gives_no_names(scripted):
    node = scripted({"QSCAN": b"-NOAUTH x\r\n", "CONFIG": b"-NOAUTH x\r\n"})
    for port in (node.port, 1):
        assert names_of(port)(QUEUES) == names_of(port)(DIRECTIVES) == []
