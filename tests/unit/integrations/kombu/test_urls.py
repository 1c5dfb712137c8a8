"""URLs and options of the transport."""

from __future__ import annotations

from datetime import timedelta

import pytest

pytest.importorskip("kombu", reason="the extra celery is not installed")

from disque_py.client import Address
from disque_py.integrations.kombu.urls import masked, read_options, split_urls, taken_login, with_login


def test_several_urls_are_nodes_of_one_client():
    found = read_options(split_urls("disque://:pw@h1:7711;disque://h2;h3:1"))
    assert found.nodes == (Address("h1", 7711), Address("h2", 7711), Address("h3", 1))
    assert found.settings["password"] == "pw"


def test_a_url_without_a_node_and_with_slashes_is_the_local_node():
    assert read_options(["disque://"]).nodes == (Address("127.0.0.1", 7711),)
    assert read_options(["disque://h1:7711//"]).nodes == (Address("h1", 7711),)


def test_options_of_the_url_are_the_transports_or_the_clients():
    found = read_options(["disque://h1?visibility_timeout=2.5&native_delay=no&patience=1"])
    assert (found.lease, found.native_delay, found.settings["patience"]) == (timedelta(seconds=2.5), False, 1.0)


def test_transport_options_win_over_the_url_and_foreign_ones_are_ignored():
    found = read_options(["disque://h1?priority_order=redis"], {"priority_order": "amqp", "polling_interval": 1})
    assert found.amqp_order


@pytest.mark.parametrize("word", ["native_delay=perhaps", "priority_order=x", "visibility_timeout=0", "unknown=1"])
def test_an_option_that_makes_no_sense_is_refused(word):
    with pytest.raises(ValueError, match=r"native_delay|priority_order|visibility_timeout|unknown"):
        read_options([f"disque://h1?{word}"])


def test_a_log_shows_no_password():
    assert masked(split_urls("disque://u:secret@h1;disque://h2")) == "disque://u:**@h1;disque://h2"


def test_a_login_is_taken_out_of_urls_and_put_back():
    urls, name, password = taken_login(["disque://u:p%40@h1?ca=/a@b", "disque://h2"])
    assert (urls, name, password) == (["disque://h1?ca=/a@b", "disque://h2"], "u", "p@")
    assert with_login(urls, name, password) == ["disque://u:p%40@h1?ca=/a@b", "disque://u:p%40@h2"]
    assert taken_login(["disque://:pw@h"])[1:] == ("", "pw")
    assert with_login(["disque://h"], "", "") == ["disque://h"]


def test_the_scheme_disques_means_tls():
    assert read_options(["disques://h1"]).settings["tls"]
