"""options.py: every wrong option is one sentence that names it."""

from __future__ import annotations

import pytest

from disque_py.client import Address
from disque_py.spark.options import OptionError, Options, check_own_schema, cluster_options

KNOWN = ("bootstrapServers", "maxOffsetsPerTrigger", "failOnDataLoss", "onError", "disque.ssl", "disque.ssl.ca")


def options(**given: str) -> Options:
    return Options("disque", {name.replace("__", "."): value for name, value in given.items()}, KNOWN)


def test_a_misspelled_option_is_refused_with_the_nearest_name():
    with pytest.raises(OptionError, match="no option 'maxoffsetspertriger'; did you mean maxOffsetsPerTrigger"):
        options(maxOffsetsPerTriger="3")


def test_names_are_compared_without_case_and_sparks_own_are_accepted():
    assert options(MAXOFFSETSPERTRIGGER="3", path="x", checkpointLocation="y").integer("maxOffsetsPerTrigger", 1) == 3


@pytest.mark.parametrize("value", ["", "three", "1.5", "-1", str(2**63)])
def test_a_number_is_whole_and_inside_its_bounds(value):
    with pytest.raises(OptionError, match="disque: option maxOffsetsPerTrigger must be"):
        options(maxOffsetsPerTrigger=value).integer("maxOffsetsPerTrigger", 1)


def test_errors_of_flags_and_choices_name_the_allowed_values():
    assert options(failOnDataLoss=" FALSE ").flag("failOnDataLoss", default=True) is False
    with pytest.raises(OptionError, match="failOnDataLoss must be true or false, not 'maybe'"):
        options(failOnDataLoss="maybe").flag("failOnDataLoss", default=True)
    with pytest.raises(OptionError, match="onError must be one of fail, skip, not 'retry'"):
        options(onError="retry").choice("onError", "fail", ("fail", "skip"))


def test_other_columns_than_the_source_has_are_refused():
    check_own_schema("f", ["a", "b"], ["a", "b"])
    with pytest.raises(OptionError, match=r"^f: the source defines its columns, and \.schema\(a\) has others"):
        check_own_schema("f", ["a"], ["a", "b"])


def test_the_cluster_is_named_by_a_comma_list():
    cluster = cluster_options(options(bootstrapServers="a:1, [::1]:2,b"))
    assert cluster.nodes == (Address("a", 1), Address("::1", 2), Address("b", 7711))


@pytest.mark.parametrize(("servers", "text"), [("", "needs the option bootstrapServers"), ("a:x", "not a port: 'a:x'")])
def test_servers_that_make_no_sense_are_refused(servers, text):
    with pytest.raises(OptionError, match=text):
        cluster_options(options(bootstrapServers=servers))


def test_a_certificate_that_cannot_be_read_is_one_sentence():
    cluster = cluster_options(options(bootstrapServers="a", disque__ssl="true", disque__ssl__ca="/nowhere.pem"))
    with pytest.raises(OptionError, match=r"disque\.ssl\.ca"):
        cluster.client_options()


@pytest.mark.parametrize("name", ["disque.ssl.ca", "disque.ssl.cert", "disque.ssl.key", "disque.ssl.verify"])
def test_an_option_of_tls_is_refused_without_tls(name):
    """Otherwise a password would be sent readably, although a certificate was given."""
    given = {"bootstrapServers": "a:7711", name: "true"}
    with pytest.raises(OptionError, match=f"{name} needs "):
        cluster_options(Options("disque", given, given))
    off = given | {"disque.ssl": "false", "disque.ssl.cert": "c"}
    assert not cluster_options(Options("disque", off, off)).ssl


def test_a_key_needs_its_certificate():
    given = {"bootstrapServers": "a:7711", "disque.ssl": "true", "disque.ssl.key": "k"}
    with pytest.raises(OptionError, match=r"needs disque\.ssl\.cert"):
        cluster_options(Options("disque", given, given))


@pytest.mark.parametrize("more", [{}, {"disque.password": ""}])
def test_a_user_needs_its_password(more):
    """Otherwise the source would not log in, and act as the user default."""
    given = {"bootstrapServers": "a:7711", "disque.username": "ann", **more}
    with pytest.raises(OptionError, match=r"disque\.username needs disque\.password.*any text"):
        cluster_options(Options("disque", given, given))


def test_the_text_of_the_options_has_no_password():
    """It is part of error messages and of Spark's plans."""
    given = {"bootstrapServers": "a:7711", "disque.password": "secret"}
    assert "secret" not in repr(cluster_options(Options("disque", given, given)))


@pytest.mark.parametrize("name", ["disque.timeoutMs", "disque.connectTimeoutMs"])
def test_a_time_that_no_clock_can_wait_is_refused(name):
    given = {"bootstrapServers": "a:7711", name: "9000000000000000"}
    with pytest.raises(OptionError, match=f"{name} must be at most 86400000"):
        cluster_options(Options("disque", given, given))
