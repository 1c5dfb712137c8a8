"""core/open_questions.py: the nodes whose answers are due."""

from __future__ import annotations

from brokers import add_node, make_broker, make_client
from disque_py.core import open_questions
from disque_py.core.asking import Question


def make_questions():
    """Two nodes, two clients, and the question of each: the first to both nodes, the second to one."""
    broker = make_broker()
    b, c = add_node(broker, 2), add_node(broker, 3)
    one, two = make_client(broker), make_client(broker)
    return b, c, one, two, {1: Question(one, 1, (b, c)), 2: Question(two, 1, (c,))}


def test_a_node_whose_link_broke_is_not_waited_for():
    b, c, _, _, questions = make_questions()
    assert open_questions.without(questions, c) == questions
    assert [list(each.unanswered) for each in questions.values()] == [[b], []]
    assert open_questions.without(questions, c) == {}


def test_only_questions_that_waited_for_the_node_are_looked_at():
    b, _, _, _, questions = make_questions()
    assert open_questions.without(questions, b) == {1: questions[1]}


def test_a_client_that_is_gone_has_no_questions():
    _, _, one, _, questions = make_questions()
    open_questions.forget_client(questions, one)
    assert list(questions) == [2]
