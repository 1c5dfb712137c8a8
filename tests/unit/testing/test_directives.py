"""directives.py: keyword arguments become words of a command line."""

from __future__ import annotations

import pytest

from disque_py.testing.directives import words_of


def test_names_get_dashes_and_flags_become_yes_and_no():
    assert words_of({"requirepass": "x", "job_meta_max_pairs": 8, "appendonly": True, "events": False}) == [
        *("--requirepass", "x", "--job-meta-max-pairs", "8", "--appendonly", "yes", "--events", "no")
    ]


def test_a_list_becomes_several_words():
    words = words_of({"client_output_buffer_limit": ["normal", 0, 0, 0]})
    assert words == ["--client-output-buffer-limit", "normal", "0", "0", "0"]


@pytest.mark.parametrize("name", ["port", "dir", "bind", "logfile", "daemonize"])
def test_a_test_cannot_choose_where_a_node_is(name):
    with pytest.raises(TypeError, match=name):
        words_of({name: "x"})
