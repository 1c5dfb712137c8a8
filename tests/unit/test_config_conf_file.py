"""Reading config files and the command line."""

from __future__ import annotations

import pytest

from disque_py.config.conf_file import ConfigError, ConfigReader
from disque_py.config.settings import Settings

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
    assert problems("dir /nowhere") == [(1, "dir /nowhere", "Can't chdir to '/nowhere': no such directory")]
    assert read("").settings.dir == "/etc"


def test_everything_wrong_is_reported_at_once_with_its_line():
    found = problems('foo 1\nport 2\nbind\nlogfile "x\nsave 900 1', "stray", "--port", "x y")
    assert [line_number for line_number, _, _ in found] == [1, 3, 4, 5, 1, 1]
    assert found[0] == (1, "foo 1", "Bad directive or wrong number of arguments")
    assert found[2] == (4, 'logfile "x', "unbalanced quotes")
    assert "belongs to Redis" in found[3][2]
    assert found[5] == (1, '--port "x y"', "argument must be an integer")


def test_the_report_names_file_line_and_reason():
    with pytest.raises(ConfigError) as caught:
        read("\nport abc")
    assert caught.value.report() == (
        "*** FATAL CONFIG FILE ERROR ***\nReading a.conf, at line 2\n>>> 'port abc'\nargument must be an integer\n"
    )


@pytest.mark.parametrize("line", ["requirepass two words", 'cluster-secret "two words', "TLS-Key-File-Pass two words"])
def test_a_report_shows_no_secrets(line):
    """It is for whoever starts the node, and for the logs of the system."""
    assert problems(line)[0][1] == f"{line.split()[0]} (hidden)"


def test_secrets_of_the_command_line_are_not_shown_either():
    assert problems("", "--requirepass", "two", "words")[0][1] == "--requirepass (hidden)"
    assert problems("", "--requirepass")[0][1] == "--requirepass"


def test_values_that_do_not_fit_together_are_reported_without_a_line():
    with pytest.raises(ConfigError) as caught:
        read("port 60000")
    assert "Reading the configuration\nthe bus port would be 70000" in caught.value.report()


def test_a_missing_include_and_one_of_itself():
    assert problems("include nix") == [(1, "include nix", "can't read '/etc/nix': No such file or directory")]
    assert problems("include") == [(1, "include", "Bad directive or wrong number of arguments")]
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
