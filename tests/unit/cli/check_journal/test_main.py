"""main.py: the commands of disque-check-journal, on real directories."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from disque_py.cli.check_journal.main import main
from made_journals import ME, OTHER, WALL_MS, facts, loadjob
from persistence.backup import DESCRIPTION_NAME, Description, encode_description
from persistence.check import Tally, read
from persistence.files import Files
from persistence.jobs_file import job_line
from persistence.new_journal import FreshJournal

LATE = 4_000_000_000_000  # These jobs don't expire during the tests.


def run(*words, stdin=None):
    result = CliRunner().invoke(main, [str(word) for word in words], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def journal(tmp_path):
    """A journal with three jobs, one of them at-most-once, in two segments."""
    directory = tmp_path / "disque.aof.d"
    folder = Files(str(directory))
    fresh = FreshJournal(folder, ME, WALL_MS, segment_bytes=1000)
    fresh.add(facts(1, expire_at_ms=LATE, body=bytes(1 << 20)))
    fresh.add(facts(2, expire_at_ms=LATE))
    fresh.add(facts(3, expire_at_ms=LATE, retry_ms=0))
    fresh.pause(b"z", 1, 0, b"")
    fresh.finish()
    folder.close()
    return directory


def last_file(journal):
    return max(journal.glob("*.seg"))


def test_info_prints_text_and_json(journal):
    status, text = run("info", journal)
    assert status == 0
    assert "3: 3 queued, 0 active, 0 acked; 1 at-most-once" in text
    assert "not closed cleanly" in text
    row = json.loads(run("info", "--json", journal)[1])
    assert (row["jobs"], row["node"], row["in_use"], len(row["segments"])) == (3, ME.hex(), False, 2)
    assert row["records"]["pause"] == {"total": 1, "live": 1}


def test_the_directory_of_a_node_is_accepted(journal):
    assert run("verify", journal.parent)[0] == 0
    os.rename(journal, journal.parent / "other.d")
    assert run("verify", journal.parent)[0] == 0
    assert run("verify", journal.parent / "other.d" / "..")[0] == 0


def test_a_directory_without_a_journal_or_with_two_is_refused(tmp_path, journal):
    (tmp_path / "empty").mkdir()
    assert "has no journal" in run("info", tmp_path / "empty")[1]
    Files(str(tmp_path / "b.d")).create("0000000001.seg", b"")
    assert "has 2 journals" in run("info", tmp_path)[1]


def test_verify_finds_nothing_in_a_whole_journal(journal):
    assert run("verify", journal) == (0, "OK: 3 jobs, 1.00M in 2 segments\n")
    assert json.loads(run("verify", "--json", journal)[1])["whole"]


def test_verify_names_the_place_of_damage(journal):
    first = min(journal.glob("*.seg"))
    with first.open("r+b") as file:
        file.seek(2000)
        file.write(b"\xff")
    status, text = run("verify", journal)
    assert status == 1
    assert f"{first.name}: damaged at byte" in text
    status, text = run("verify", "--json", journal)
    assert (status, json.loads(text)["whole"]) == (1, False)
    assert run("info", journal)[0] == 1


def test_a_torn_end_is_found_and_repaired_with_consent(journal):
    with last_file(journal).open("ab") as file:
        file.write(b"half a block")
    status, text = run("verify", journal)
    assert status == 1
    assert "the last 12 bytes" in text
    assert "torn" in run("info", journal)[1]
    assert run("repair", journal, stdin="n\n")[0] == 1
    assert run("verify", journal)[0] == 1
    assert run("repair", journal, "--yes")[0] == 0
    assert run("verify", journal)[0] == 0
    assert "Nothing to repair" in run("repair", journal, "--yes")[1]


def test_a_journal_in_use_is_looked_at_and_not_repaired(journal):
    files = Files(str(journal))
    with last_file(journal).open("ab") as file:
        file.write(b"half a block")
    assert "a node is writing it" in run("verify", journal)[1]
    assert "in use by a running node" in run("info", journal)[1]
    status, text = run("repair", journal, "--yes")
    assert status == 1
    assert "in use by process" in text
    files.close()


def test_dump_prints_records_or_jobs(journal):
    rows = [json.loads(line) for line in run("dump", "--no-bodies", journal)[1].splitlines()]
    assert [row["kind"] for row in rows] == ["job", "pause", "job", "job"]
    assert all("body" not in row or row["body"] is None for row in rows)
    rows = [json.loads(line) for line in run("dump", "--jobs", "--no-bodies", journal)[1].splitlines()]
    assert [row.get("body_bytes") for row in rows] == [None, None, 1 << 20, 6, 6]


def test_exported_jobs_can_be_imported(journal, tmp_path):
    """At-most-once jobs are imported as delivered, because the journal doesn't show that they were not."""
    lines = tmp_path / "jobs.jsonl"
    assert run("export", journal, lines) == (0, f"3 jobs written to {lines}\n")
    status, text = run("import", lines, tmp_path / "new.d")
    assert status == 0
    assert "3 jobs imported" in text
    assert "1 at-most-once job among" in text
    assert run("export", tmp_path / "new.d", "-")[1].splitlines()[2:] == lines.read_text().splitlines()[2:]


def test_export_overwrites_nothing_and_leaves_no_incomplete_file(journal, tmp_path):
    lines = tmp_path / "jobs.jsonl"
    lines.touch()
    status, text = run("export", journal, lines)
    assert (status, "exists" in text) == (1, True)
    lines.unlink()
    with min(journal.glob("*.seg")).open("r+b") as file:
        file.seek(2000)
        file.write(b"\xff")
    assert run("export", journal, lines)[0] == 1
    assert not lines.exists()


def test_an_export_that_does_not_fit_leaves_no_file(journal, tmp_path):
    """This includes the last bytes, which are written when the file is closed."""
    whole, half = tmp_path / "whole.jsonl", tmp_path / "half.jsonl"
    run("export", journal, whole)
    words = [sys.executable, "-m", "disque_py.cli.check_journal.main", "export", str(journal), str(half)]
    limit = f'ulimit -f {(whole.stat().st_size - 1) // 512} && exec "$@"'
    result = subprocess.run(["sh", "-c", limit, "sh", *words], capture_output=True, text=True, timeout=20, check=False)
    assert (result.returncode, result.stderr) == (1, f"Error: {half}: File too large\n")
    assert not half.exists()


def test_a_file_of_the_original_is_imported(tmp_path):
    aof = tmp_path / "disque.aof"
    aof.write_bytes(b"".join(loadjob(number, expire=LATE // 1000) for number in range(5)) + loadjob(9, expire=1))
    target = tmp_path / "disque.aof.d"
    assert run("import", aof, target) == (0, f"5 jobs imported into {target}, 1 expired\n")
    tally = Tally()
    recovery = read(Files(str(target), readonly=True), tally)
    assert recovery.newest is not None
    assert recovery.newest.node == ME
    assert "has a journal already" in run("import", aof, target)[1]
    assert "is now in" in run("import", aof, target, "--force")[1]


@pytest.mark.parametrize("command", ["verify", "repair", "info"])
def test_a_file_of_the_original_in_place_of_a_journal_is_for_import(command, tmp_path):
    """disque-check-aof takes such a file."""
    path = tmp_path / "disque.aof"
    path.write_bytes(b"")
    status, text = run(command, path)
    assert status == 2
    assert "`disque-check-journal import`" in " ".join(text.split())


def test_importing_into_a_missing_directory_says_what_to_do(tmp_path):
    (tmp_path / "disque.aof").write_bytes(loadjob(1, expire=LATE // 1000))
    status, text = run("import", tmp_path / "disque.aof", tmp_path / "imp" / "disque.aof.d")
    assert (status, text) == (1, f"Error: {tmp_path}/imp does not exist: create it\n")


def test_importing_a_file_of_several_nodes_needs_an_option(tmp_path):
    aof = tmp_path / "disque.aof"
    aof.write_bytes(loadjob(1, expire=LATE // 1000, holders=(ME, OTHER)))
    status, text = run("import", aof, tmp_path / "j")
    assert status == 1
    assert "--nodes-file" in text
    assert os.listdir(tmp_path) == ["disque.aof"]
    for number, words in enumerate((["--node", ME.hex()], ["--alone"])):
        assert run("import", aof, tmp_path / f"j{number}", *words)[0] == 0
    nodes = tmp_path / "nodes.conf"
    nodes.write_text(f"{OTHER.hex()} 127.0.0.1:7711 myself 0 0 connected\n")
    assert run("import", aof, tmp_path / "k")[0] == 0
    row = json.loads(run("info", "--json", tmp_path / "k")[1])
    assert row["node"] == OTHER.hex()


@pytest.mark.parametrize(
    "words", [["--node", "xyz"], ["--node", "ab"], ["--node", "ab" * 20, "--nodes-file", "/dev/null"]]
)
def test_wrong_arguments_are_a_usage_error(words, tmp_path):
    (tmp_path / "a").write_bytes(loadjob())
    assert run("import", tmp_path / "a", tmp_path / "j", *words)[0] == 2


def test_importing_a_damaged_file_names_it_and_leaves_nothing(tmp_path):
    (tmp_path / "a").write_bytes(loadjob() + b"*1\r\n$4\r\nEXEC\r\n")
    (tmp_path / "b").write_text(job_line(facts()) + "\nnonsense\n")
    assert "byte 151: EXEC" in run("import", tmp_path / "a", tmp_path / "j")[1]
    assert "line 2" in run("import", tmp_path / "b", tmp_path / "j")[1]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_backup_that_was_copied_in_part_is_found(journal):
    files = {path.name: path.stat().st_size for path in journal.glob("*.seg")}
    folder = Files(str(journal), readonly=True)
    position = read(folder, Tally()).position
    folder.close()
    for description, status in (
        (Description(ME, WALL_MS, files, position), 0),
        (Description(ME, WALL_MS, files, position + 40), 1),
        (Description(ME, WALL_MS, files | {"0000000003.seg": 5}, position), 1),
    ):
        (journal / DESCRIPTION_NAME).write_bytes(encode_description(description))
        assert run("verify", journal)[0] == status


@pytest.mark.parametrize("command", [[], ["info"], ["verify"], ["repair"], ["dump"], ["export"], ["import"]])
def test_every_command_has_help(command):
    status, text = run(*command, "--help")
    assert status == 0
    assert "Usage" in text


def test_completion_is_a_script():
    assert "_DISQUE_CHECK_JOURNAL_COMPLETE" in run("completion", "bash")[1]
