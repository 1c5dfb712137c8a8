"""backup_commands.py: the commands, their output and exit statuses."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from disque_py.cli.cluster.main import main
from made_journals import ME, WALL_MS, facts
from persistence.backup import DESCRIPTION_NAME, NODES_NAME, Description, encode_description
from persistence.check import Tally, read
from persistence.files import Files
from persistence.new_journal import FreshJournal


def run(*words):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def node(scripted, bulk_reply, tmp_path):
    """A scripted node with a backup in tmp_path/node."""
    directory = tmp_path / "node"
    folder = Files(str(directory))
    fresh = FreshJournal(folder, ME, WALL_MS)
    fresh.add(facts())
    fresh.finish()
    position = read(folder, Tally()).position
    sizes = {name: folder.size(name) for name in folder.names()}
    folder.close()
    (directory / NODES_NAME).write_text(f"{ME.hex()} 127.0.0.1:7711 myself 0 0 connected\n")
    (directory / DESCRIPTION_NAME).write_bytes(encode_description(Description(ME, WALL_MS, sizes, position)))
    table = f"{ME.hex()} 127.0.0.1:7711 myself 0 0 connected\n"
    pairs = [bulk_reply("path"), bulk_reply(str(directory)), bulk_reply("files"), b":1\r\n", bulk_reply("bytes")]
    return scripted(
        {
            "CLUSTER NODES": bulk_reply(table),
            "CLUSTER INFO": bulk_reply("cluster_size:1\r\n"),
            "CLUSTER LEAVING": b"+no\r\n",
            "INFO": bulk_reply("registered_jobs:1\r\n"),
            "HELLO": b"*2\r\n:1\r\n" + bulk_reply(ME.hex()),
            "JOURNAL BACKUP": b"*6\r\n" + b"".join(pairs) + b":2048\r\n",
        }
    )


def test_backup_prints_where_the_backup_is(node, tmp_path):
    status, text = run("backup", f"127.0.0.1:{node.port}", "--name", "one")
    assert status == 0
    assert text == f"127.0.0.1:{node.port} (00010203): {tmp_path / 'node'} (2.00K in 1 file)\n"
    row = json.loads(run("backup", "--only", f"127.0.0.1:{node.port}", "--json")[1])
    assert (row["node"], row["files"], row["bytes"]) == (ME.hex(), 1, 2048)
    assert node.requests[-1][2][:2] == b"20"


def test_backups_are_gathered_and_restored(node, tmp_path):
    to = tmp_path / "all.tar.gz"
    status, text = run("backup", f"127.0.0.1:{node.port}", "--to", to, "--keep")
    assert (status, f"The copies are in {to}" in text) == (0, True)
    assert (tmp_path / "node").exists()
    status, text = run("restore", to, tmp_path / "home")
    assert status == 0
    assert text.startswith("1 job (")
    assert "for node 00010203" in text
    status, text = run("restore", to, tmp_path / "home")
    assert (status, "--force" in text) == (1, True)
    status, text = run("restore", to, tmp_path / "home", "--force", "--new-id")
    assert (status, "disque.aof.d.old-1" in text, "another id" in text) == (0, True, True)


def test_a_restore_that_fails_leaves_no_directory(node, tmp_path):
    to = tmp_path / "all.tar"
    run("backup", f"127.0.0.1:{node.port}", "--to", to, "--keep")
    (tmp_path / "half.tar").write_bytes(to.read_bytes()[: to.stat().st_size // 2])
    (tmp_path / "text").write_text("no backup")
    for source in ("half.tar", "text"):
        status, text = run("restore", tmp_path / source, tmp_path / "home")
        assert (status, (tmp_path / "home").exists()) == (1, False), text
        assert not text.rstrip().endswith(":")


def test_a_journals_directory_is_not_taken_for_a_nodes(node, tmp_path):
    """The node would not look there, so it would start empty."""
    run("backup", f"127.0.0.1:{node.port}", "--to", tmp_path / "all", "--keep")
    (tmp_path / "home").mkdir()
    status, text = run("restore", tmp_path / "all", tmp_path / "home" / "disque.aof.d")
    assert (status, "the directory that contains it" in text) == (2, True)
    assert not (tmp_path / "home" / "disque.aof.d").exists()


def test_without_keep_the_copies_on_the_nodes_are_removed(node, tmp_path):
    assert run("backup", f"127.0.0.1:{node.port}", "--to", tmp_path / "all")[0] == 0
    assert not (tmp_path / "node").exists()
    assert os.listdir(tmp_path / "all") == [ME.hex()]


@pytest.mark.parametrize("name", ["all", "all.tar.gz"])
def test_no_copy_is_made_for_a_directory_that_does_not_exist(node, tmp_path, name):
    """The copies would stay beside the journals, and nothing would remove them."""
    status, text = run("backup", f"127.0.0.1:{node.port}", "--to", tmp_path / "no" / name)
    assert (status, text) == (1, f"Error: {tmp_path}/no does not exist: create it\n")
    assert [b"JOURNAL", b"BACKUP"] not in [words[:2] for words in node.requests]


def test_no_copy_is_made_for_a_directory_that_can_not_be_written(node):
    """/proc is such a directory for every user, also for root."""
    status, text = run("backup", f"127.0.0.1:{node.port}", "--to", "/proc/all.tar")
    assert (status, text) == (1, "Error: /proc can't be written (No such file or directory): name another directory\n")
    assert [b"JOURNAL", b"BACKUP"] not in [words[:2] for words in node.requests]


def test_the_working_directory_may_be_where_backups_are_gathered(node, tmp_path, monkeypatch):
    (tmp_path / "all").mkdir()
    monkeypatch.chdir(tmp_path / "all")
    assert run("backup", f"127.0.0.1:{node.port}", "--to", ".")[0] == 0
    assert os.listdir(tmp_path / "all") == [ME.hex()]


def test_a_backup_on_another_machine_is_not_mixed_up_with_ours(node, tmp_path, bulk_reply):
    """Every machine may have the same path, such as /var/lib/disque.

    This machine's backup would be gathered and removed.
    """
    node.answers["CLUSTER NODES"] = bulk_reply(f"{'ab' * 20} 127.0.0.1:7711 myself 0 0 connected\n")
    status, text = run("backup", "--only", f"127.0.0.1:{node.port}", "--to", tmp_path / "all")
    assert (status, "does not belong to node abababab" in text) == (1, True)
    assert (tmp_path / "node").exists()
    assert not (tmp_path / "all").exists()


def test_a_node_that_fails_is_reported_and_the_others_are_backed_up(node, scripted):
    silent = scripted({})
    silent.close()
    words = ("--only", f"127.0.0.1:{silent.port}", "--only", f"127.0.0.1:{node.port}")
    status, text = run("backup", *words)
    assert status == 1
    assert "Could not connect" in text
    assert "2.00K in 1 file" in text
    node.answers["JOURNAL BACKUP"] = b"-ERR No backup was made: there is no journal\r\n"
    rows = [json.loads(line) for line in run("backup", *words, "--json")[1].splitlines()]
    assert "there is no journal" in rows[1]["error"]


@pytest.mark.parametrize("words", [["--name", "../x"], ["--keep"]])
def test_wrong_arguments_are_a_usage_error(words):
    assert run("backup", "127.0.0.1:1", *words)[0] == 2


def test_a_file_that_is_not_a_backup_is_refused_in_one_line(tmp_path):
    (tmp_path / "letter").write_text("hello")
    status, text = run("restore", tmp_path / "letter", tmp_path / "home")
    assert status == 1
    assert text.count("\n") == 1
    status, text = run("restore", tmp_path / "letter", tmp_path / "no" / "home")
    assert (status, text) == (1, f"Error: {tmp_path}/no does not exist: create it\n")


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_backup_and_restore_have_help(command):
    status, text = run(command, "--help")
    assert (status, "Usage" in text) == (0, True)
