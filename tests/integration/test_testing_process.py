"""testing/process.py: a node starts, fails, and comes back."""

from __future__ import annotations

import pytest

from disque_py import testing


def test_directives_are_keyword_arguments_and_the_url_has_the_password():
    with testing.node(requirepass="a b@c", maxmemory="10mb") as node, node.client() as disque:
        assert "a%20b%40c@" in node.url
        assert disque.config_get("maxmemory") == {"maxmemory": str(10 * 1024 * 1024)}


def test_a_wrong_directive_is_an_error_with_the_words_of_the_node():
    with pytest.raises(testing.NodeError, match="maxmemry"), testing.node(maxmemry="1mb"):
        pass


def test_a_killed_node_comes_back_with_its_journal_and_its_port():
    with testing.node(appendonly=True) as node:
        with node.client() as disque:
            job_id = disque.add_job("q", b"body")
        url = node.url
        node.kill()
        assert not node.is_running
        node.start()
        assert node.url == url
        with node.client() as disque:
            assert disque.show(job_id) is not None
        node.restart()
        node.stop()
        assert node.pid is None
