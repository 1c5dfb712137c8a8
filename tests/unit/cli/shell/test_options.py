"""options.py: the options of a command line, and combinations that make no sense."""

from __future__ import annotations

import pytest

from disque_py.cli.address import Tls
from disque_py.cli.shell.formats import CSV, FORMATTED, JSON, RAW
from disque_py.cli.shell.options import UsageError, parse_options
from disque_py.client import Address


def test_without_options_it_is_the_default_port_here():
    target = parse_options([], {}).target()
    assert target.address == Address("127.0.0.1", 7711)
    assert (target.protocol, target.password, target.tls) == (2, "", None)


def test_options_end_at_the_first_other_word():
    """Spec X1."""
    options = parse_options(["-p", "7712", "ADDJOB", "-h", "--raw"], {})
    assert options.port == 7712
    assert options.words == ["ADDJOB", "-h", "--raw"]


def test_the_password_may_come_from_the_environment_and_an_option_wins():
    assert parse_options([], {"DISQUECLI_AUTH": "env"}).target().password == "env"
    assert parse_options(["-a", "arg"], {"DISQUECLI_AUTH": "env"}).target().password == "arg"


@pytest.mark.parametrize(
    ("option", "name"), [("--raw", RAW), ("--no-raw", FORMATTED), ("--csv", CSV), ("--json", JSON)]
)
def test_the_format_is_chosen(option, name):
    assert parse_options([option, "PING"], {}).format is name


def test_json_prefers_resp3_and_the_option_2_forbids_it():
    target = parse_options(["--json"], {}).target()
    assert (target.protocol, target.protocol_is_preferred) == (3, True)
    assert parse_options(["--json", "-2"], {}).target().protocol == 2
    assert not parse_options(["-3"], {}).target().protocol_is_preferred


def test_a_url_names_the_server_and_user_and_options_the_certificates():
    target = parse_options(["-u", "disques://ann:pw@node:9", "--cacert", "ca.pem"], {}).target()
    assert (target.address, target.user, target.password) == (Address("node", 9), "ann", "pw")
    assert target.tls == Tls(ca_file="ca.pem")


def test_options_of_tls_in_a_url_are_used_and_the_command_line_wins():
    url = "disques://node:9/?ca=ca.pem&cert=c.pem&key=k.pem&verify=no"
    assert parse_options(["-u", url], {}).target().tls == Tls("ca.pem", "c.pem", "k.pem", is_insecure=True)
    assert parse_options(["-u", url, "--cacert", "mine.pem", "--cert", "both.pem"], {}).target().tls == Tls(
        "mine.pem", "both.pem", "", is_insecure=True
    )


@pytest.mark.parametrize(("option", "name"), [("--port", "-p"), ("--host", "-h"), ("--url=disque://a", "-u")])
def test_long_names_of_other_programs_get_advice(option, name):
    with pytest.raises(UsageError, match=rf"{option}'. Use {name}$"):
        parse_options([option, "7711"], {})


def test_a_command_may_be_repeated_with_a_pause():
    options = parse_options(["-r", "-1", "-i", "0.5", "PING"], {})
    assert (options.repeat, options.interval_s) == (-1, 0.5)


@pytest.mark.parametrize("mode", ["latency", "latency-history", "stat", "bigqueues", "scan", "pipe", "health", "help"])
def test_options_select_the_mode(mode):
    assert parse_options([f"--{mode}"], {}).mode == mode


def test_intrinsic_latency_takes_seconds():
    options = parse_options(["--intrinsic-latency", "2"], {})
    assert (options.mode, options.intrinsic_s) == ("intrinsic-latency", 2.0)


def test_h_as_last_word_is_help():
    assert parse_options(["-h"], {}).mode == "help"


@pytest.mark.parametrize("arguments", [["--stat", "--stat"], ["--scan", "--stat", "--help"]])
def test_a_mode_may_be_repeated_and_help_goes_with_every_mode(arguments):
    assert parse_options(arguments, {}).mode == arguments[-1].removeprefix("--")


UNKNOWN = "Unrecognized option or bad number of args for:"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--eval"], f"{UNKNOWN} '--eval'. There are no scripts, send the commands one by one"),
        (["-n", "3", "PING"], f"{UNKNOWN} '-n'. There are no numbered databases, leave it out"),
        (["--bigkeys"], f"{UNKNOWN} '--bigkeys'. Use --bigqueues"),
        (["-c", "PING"], f"{UNKNOWN} '-c'. Nodes redirect no client, leave it out"),
        (["--slave"], f"{UNKNOWN} '--slave'. Use disque-cli events --follow"),
        (["--rdb", "x"], f"{UNKNOWN} '--rdb'. Use disque-cluster backup"),
        (
            ["--bigqueus"],
            "Unrecognized option or bad number of args for: '--bigqueus'. Did you mean '--bigqueues'?",
        ),
        (["--completion", "csh"], "--completion: 'csh' is not one of bash, zsh, fish"),
        (["-p"], "Unrecognized option or bad number of args for: '-p'"),
        (["-p", "x"], "-p: 'x' is not a port"),
        (["-i", "-1"], "-i: '-1' is not a number of seconds"),
        (["-r", "many"], "-r: 'many' is not a whole number"),
        (["-x"], "-x and -X need a command"),
        (["-x", "-X", "t", "PING", "t"], "-x and -X can't be used together: both read standard input"),
        (["-X", "tag", "PING"], "-X: no argument is 'tag'"),
        (["--stat", "PING"], "--stat takes no command, but got 'PING'"),
        (["--scan", "--stat"], "--scan and --stat can't be used together"),
        (["--health", "--completion", "bash"], "--health and --completion can't be used together"),
        (["--stat", "--pattern", "a*"], "--pattern works only with --scan, --queues and --bigqueues"),
        (["--pattern", "a*", "QLEN", "q"], "--pattern works only with --scan, --queues and --bigqueues"),
        (["--pipe-timeout", "5", "PING"], "--pipe-timeout works only with --pipe"),
        (["--pipe", "--json"], "--pipe has no JSON output: leave out --json"),
        (["--tls", "--key", "k.pem"], "--key needs --cert"),
        (["--cacert", "ca.pem"], "--cacert needs --tls"),
        (["-u", "disque://localhost", "--insecure"], "--insecure needs --tls"),
    ],
)
def test_invalid_options_are_refused_with_a_reason(arguments, text):
    with pytest.raises(UsageError) as caught:
        parse_options(arguments, {})
    assert str(caught.value) == text
