"""Reading config files and the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from disque_py.config.conf_file import ConfigError, ConfigReader
from disque_py.config.directives import DIRECTIVES, NEVER
from disque_py.config.settings import Settings
from disque_py.resp.words import quote_text

FILES = {
    "/etc/shared.conf": "maxclients 5\n",
    "/data/local.conf": "timeout 7\n",
    "/etc/loop.conf": "include loop.conf\n",
}


def reader():
    return ConfigReader(Settings(), "/etc", read_stored, lambda path: path in ("/etc", "/data", "/data/sub"))


def read_stored(path):
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory", path)
    return FILES[path]


def read(text, *options):
    it = reader()
    it.read_text(text, "a.conf")
    it.read_options(options)
    it.finish()
    return it


def problems(text, *options):
    with pytest.raises(ConfigError) as caught:
        read(text, *options)
    return [(problem.line_number, problem.line, problem.reason) for problem in caught.value.problems]


def test_comments_blank_lines_case_and_quotes():
    settings = read('# a comment\r\n\n  PORT 7799 \r\nlogfile "a b.log"\n').settings
    assert (settings.port, settings.logfile) == (7799, "a b.log")


def test_later_lines_win_and_the_command_line_comes_last():
    """Spec D1."""
    settings = read("port 1\nport 2\ntimeout 3", "--port", "4", "--bind", "::1", "127.0.0.1").settings
    assert (settings.port, settings.timeout, settings.bind) == (4, 3, ("::1", "127.0.0.1"))


def test_blanks_and_quotes_inside_one_argument_are_kept():
    assert read("", "--requirepass", 'a "b').settings.requirepass == 'a "b'


def test_negative_values_do_not_begin_a_new_directive():
    assert read("", "--slowlog-log-slower-than", "-1").settings.slowlog_log_slower_than == -1


def test_included_files_are_read_where_they_are_named():
    it = read("maxclients 4\ninclude shared.conf\nport 1")
    assert (it.settings.maxclients, it.included) == (5, {"maxclients"})


def test_dir_changes_what_later_paths_refer_to():
    it = read("dir /data\ninclude local.conf\ndir sub")
    assert (it.settings.timeout, it.settings.dir) == (7, "/data/sub")


def test_a_missing_directory_is_an_error_and_without_dir_it_is_the_current_one():
    text = "Can't chdir to '/nowhere': no such directory. Create it, or change dir"
    assert problems("dir /nowhere") == [(1, "dir /nowhere", text)]
    assert read("").settings.dir == "/etc"


def test_all_errors_are_reported_at_once_with_their_lines():
    found = problems('foo 1\nport 2\nbind\nlogfile "x\nsave 900 1', "stray", "--port", "x y")
    assert [line_number for line_number, _, _ in found] == [1, 3, 4, 5, 1, 1]
    assert found[0] == (1, "foo 1", "Bad directive or wrong number of arguments: there is no directive 'foo'")
    assert found[2] == (4, 'logfile "x', "unbalanced quotes")
    assert "belongs to Redis" in found[3][2]
    assert found[5] == (1, '--port "x y"', "argument must be an integer")


def test_the_report_names_file_line_reason_and_next_step():
    with pytest.raises(ConfigError) as caught:
        read("\nport abc")
    assert caught.value.report() == (
        "*** FATAL CONFIG FILE ERROR ***\nReading a.conf, at line 2\n>>> 'port abc'\nargument must be an integer\n"
        "Correct this and start again. conf/disque.conf explains each directive; `disque-server --test-config` checks"
        " a configuration without starting a node.\n"
    )


def test_an_option_of_the_command_line_has_no_line_number():
    with pytest.raises(ConfigError) as caught:
        read("", "--port", "abc")
    assert "Reading the command line\n>>> '--port abc'\nargument must be an integer\n" in caught.value.report()


@pytest.mark.parametrize("line", ["requirepass two words", 'cluster-secret "two words', "TLS-Key-File-Pass two words"])
def test_a_report_shows_no_secrets(line):
    """Reports go to the operator, and into the logs of the system."""
    assert problems(line)[0][1] == f"{line.split()[0]} (hidden)"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("requirpass hunter2", "requirpass (hidden)"),
        ("cluster_secret hunter2", "cluster_secret (hidden)"),
        ("'requirepass' hunter2 x", "'requirepass' (hidden)"),
        ("requirepass=hunter2", "requirepass= (hidden)"),
        ("requirepas=hunter2", "requirepas= (hidden)"),
        ("masterauth hunter2", "masterauth (hidden)"),
        ("user ops on >hunter2", "user (hidden)"),
    ],
)
def test_a_report_of_a_misspelled_line_shows_no_secret(line, shown):
    [(_, found, reason)] = problems(line)
    assert found == shown
    assert "hunter2" not in reason
    assert "hunter2" not in str(problems("", *f"--{line}".split()))


def test_an_equals_sign_behind_a_directive_is_explained():
    assert problems("port=1")[0][1:] == (
        "port=1",
        "Bad directive or wrong number of arguments: put a blank between 'port' and its value, and no =",
    )


def test_secrets_of_the_command_line_are_not_shown_either():
    assert problems("", "--requirepass", "two", "words")[0][1] == "--requirepass (hidden)"
    assert problems("", "--requirepass")[0][1] == "--requirepass"


def test_values_that_do_not_fit_together_are_reported_without_a_line():
    with pytest.raises(ConfigError) as caught:
        read("port 60000")
    assert "Reading the configuration\nthe bus port would be 70000" in caught.value.report()


def test_a_missing_include_and_an_include_of_itself_are_errors():
    assert problems("include nix") == [(1, "include nix", "can't read '/etc/nix': No such file or directory")]
    text = "Bad directive or wrong number of arguments: give the path of one file"
    assert problems("include") == [(1, "include", text)]
    assert "include each other" in problems("include loop.conf")[0][2]


def test_a_file_of_the_original_is_accepted():
    text = """
        daemonize no
        port 7711
        tcp-backlog 511
        timeout 0
        tcp-keepalive 0
        loglevel notice
        databases 16
        maxmemory-samples 5
        appendonly no
        appendfilename "disque.aof"
        appendfsync everysec
        no-appendfsync-on-rewrite no
        auto-aof-rewrite-percentage 100
        auto-aof-rewrite-min-size 64mb
        aof-load-truncated yes
        slowlog-log-slower-than 10000
        latency-monitor-threshold 0
        client-output-buffer-limit normal 0 0 0
        hz 10
        aof-rewrite-incremental-fsync yes
        activerehashing yes
        rename-command DEBUG ""
    """
    assert read(text).settings.rename_command == (("debug", ""),)


# -- the environment ----------------------------------------------------------------------------------------


def environment(text="", *options, **variables):
    it = reader()
    it.read_text(text, "a.conf")
    it.read_environment(variables)
    it.read_options(options)
    it.finish()
    return it


def variable_problems(**variables):
    with pytest.raises(ConfigError) as caught:
        environment(**variables)
    return [(problem.source, problem.reason) for problem in caught.value.problems]


def test_empty_lines_of_a_variable_are_ignored():
    settings = environment(DISQUE_RENAME_COMMAND="debug x\n\nflush y\n", DISQUE_BIND=" ").settings
    assert settings.rename_command == (("debug", "x"), ("flush", "y"))
    assert settings.bind == environment().settings.bind


def test_the_environment_wins_over_the_file_and_the_command_line_over_both():
    settings = environment("port 1\ntimeout 1\nhz 1", "--port", "3", DISQUE_PORT="2", DISQUE_TIMEOUT="2").settings
    assert (settings.port, settings.timeout, settings.hz) == (3, 2, 1)


def test_every_directive_has_a_variable():
    """A variable accepts the text of its directive's value."""
    for directive in DIRECTIVES:
        lines = [" ".join(map(quote_text, words)) for words in directive.kind.lines(directive.default)]
        value = "\n".join(lines) if directive.kind.takes_many_words else directive.kind.text(directive.default)
        if not value or directive.rewriting == NEVER or directive.name == "dir":
            continue
        it = environment(**{f"DISQUE_{directive.attribute.upper()}": value})
        assert it.settings.value(directive.name) == directive.default
        assert it.ignored == []


def test_words_and_lines_of_a_variable_are_those_of_a_file():
    many = {"DISQUE_BIND": "10.0.0.1 ::1", "DISQUE_RENAME_COMMAND": 'debug ""\nconfig secret'}
    settings = environment(DISQUE_REQUIREPASS='two words "', **many).settings
    assert settings.bind == ("10.0.0.1", "::1")
    assert settings.rename_command == (("debug", ""), ("config", "secret"))
    assert settings.requirepass == 'two words "'


def test_an_empty_variable_is_not_set():
    assert environment("requirepass x", DISQUE_REQUIREPASS="", DISQUE_PORT="", DISQUE_X="").settings.requirepass == "x"


def test_directory_and_include_come_before_what_they_concern():
    it = environment(DISQUE_INCLUDE="shared.conf", DISQUE_DIR="/data", DISQUE_MAXCLIENTS="6")
    assert (it.settings.maxclients, it.settings.dir, it.included) == (6, "/data", {"maxclients"})


def test_a_wrong_value_names_its_variable_and_shows_no_secret():
    assert variable_problems(DISQUE_PORT="x") == [
        ("the environment variable DISQUE_PORT", "argument must be an integer")
    ]
    assert "xxx" not in str(variable_problems(DISQUE_REQUIREPASS="x" * 600))
    assert "Bad directive" in variable_problems(DISQUE_WATCHDOG_PERIOD="1")[0][1]


def test_a_misspelt_variable_is_an_error_that_suggests_the_right_name():
    reason = "there is no such directive. Did you mean DISQUE_MAXMEMORY?"
    assert variable_problems(DISQUE_MAXMEMRY="1gb") == [("the environment variable DISQUE_MAXMEMRY", reason)]


def test_variables_of_others_are_ignored_and_named():
    others = {f"DISQUE_{word}": "x" for word in ("SITE", "NODES", "PASSWORD", "HOST")} | {"DISQUE_TIMEOUT": "4"}
    it = environment(DISQUECLI_AUTH="x", OTHER="x", **others)
    assert it.ignored == ["DISQUE_HOST", "DISQUE_NODES", "DISQUE_PASSWORD", "DISQUE_SITE"]
    assert it.settings.timeout == 4


def test_variables_of_disque_py_are_not_reported_as_unknown():
    """These are the variables that the sources name, and those of shell completion."""
    root = Path(__file__).resolve().parents[3]
    files = [*root.glob("bin/*"), root / "setup.py", *root.glob("disque_py/**/*.py")]
    named = {name for file in files for name in re.findall(r"\bDISQUE_[A-Z_]+[A-Z]\b", file.read_text("utf-8"))}
    named -= {"DISQUE_TCP_BACKLOG", "DISQUE_PORT"}  # Examples of directives.
    assert {"DISQUE_VENV", "DISQUE_PY_COMPILE", "DISQUE_RESTARTED"} <= named
    assert environment(**dict.fromkeys(named, "x"), _DISQUE_CLI_COMPLETE="x").ignored == []


def test_variables_of_a_kubernetes_service_named_disque_are_ignored():
    """Kubernetes sets DISQUE_PORT to the service's address in the containers of its namespace."""
    service = {
        "DISQUE_SERVICE_HOST": "10.0.0.7",
        "DISQUE_SERVICE_PORT": "7711",
        "DISQUE_SERVICE_PORT_CLIENTS": "7711",
        "DISQUE_PORT": "tcp://10.0.0.7:7711",
        "DISQUE_TLS_PORT": "tcp://10.0.0.7:7712",
        "DISQUE_NODES_PORT": "tcp://10.0.0.7:7711",
        "DISQUE_PORT_7711_TCP": "tcp://10.0.0.7:7711",
        "DISQUE_PORT_7711_TCP_ADDR": "10.0.0.7",
        "DISQUE_NODES_PORT_7711_TCP_PROTO": "tcp",
    }
    it = environment(**service)
    assert (it.settings.port, it.settings.tls_port, it.ignored) == (7711, 0, [])
