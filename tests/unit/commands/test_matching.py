"""commands/matching.py: GETJOB … FROMMATCH as a command. The walk over queues is in unit/core/test_matching.py."""

from __future__ import annotations

from brokers import ask, ask_parsed, error_of, make_broker, make_client
from copies import advance
from disque_py.commands.table import COMMANDS


def test_the_syntax_names_both_places_of_queues():
    """Spec TP1."""
    syntax = next(command.syntax for command in COMMANDS if command.name == "getjob")
    by_name, by_pattern = syntax.split("\n")
    assert by_name.endswith("FROM queue [queue ...]")
    assert by_pattern.endswith("FROMMATCH pattern [pattern ...]")


def test_a_getjob_whose_patterns_are_new_waits_for_the_comparison_of_very_many_queues():
    broker = make_broker()
    client, producer = make_client(broker), make_client(broker)
    for number in range(2_000):
        broker.queue(b"q%d" % number)
    ask(broker, producer, "ADDJOB", "q1999", "found", 0)
    ask(broker, client, "GETJOB", "FROMMATCH", "q19*")
    assert not client.out
    for _ in range(10):
        advance(broker, 1)
    assert b"found" in b"".join(client.out)


def test_a_leaving_node_lets_no_client_wait():
    broker = make_broker()
    client = make_client(broker)
    ask(broker, client, "CLUSTER", "LEAVING", "yes")
    assert error_of(broker, client, "GETJOB", "FROMMATCH", "q*").startswith("LEAVING")


def test_a_poll_answers_nil():
    broker = make_broker()
    assert ask_parsed(broker, make_client(broker), "GETJOB", "NOHANG", "FROMMATCH", "[a-z]*") is None
