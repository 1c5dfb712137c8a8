"""bin/disque-sim: options, output, exit status."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

import disque_py.simulator.main
from disque_py import __version__
from disque_py.core import lifecycle
from disque_py.simulator.main import Order, interrupting_worlds, main, seeds_of
from disque_py.simulator.plan import draw
from disque_py.simulator.shrink import shrink
from disque_py.simulator.simulation import simulate
from disque_py.simulator.world.world import World


def run(*words: str):
    return CliRunner().invoke(main, ["--seconds", "0.3", *words])


def test_seeds_are_played_and_summed_up():
    """If no rule broke, the exit status is 0."""
    outcome = run("--seeds", "1..3", "--weather", "fair")
    assert outcome.exit_code == 0, outcome.output
    assert "3 seeds, 0 failed" in outcome.output


def test_a_script_for_completion_is_printed():
    outcome = run("--completion", "bash")
    assert outcome.exit_code == 0
    assert "_DISQUE_SIM_COMPLETE" in outcome.output


def test_hashes_are_the_same_in_one_process_and_in_two():
    """The lines are `seed hash`, in the order of seeds."""
    one = run("--seeds", "1..4", "--trace-hash", "--weather", "breaks")
    two = run("--seeds", "1..4", "--trace-hash", "--weather", "breaks", "--jobs", "2")
    lines = [line for line in one.stdout.splitlines() if line[:1].isdigit() and len(line.split()) == 2]
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    assert [line for line in two.stdout.splitlines() if line in lines] == lines


@pytest.mark.plain
def test_a_broken_rule_is_shrunk_and_shown(monkeypatch):
    """The output has the command that replays it, and the exit status is 1."""
    monkeypatch.setattr(lifecycle, "lease", lifecycle.forget)
    outcome = run("--seeds", "5", "--weather", "fair", "--seconds", "1")
    assert outcome.exit_code == 1
    assert "again: bin/disque-sim --seeds 5 --seconds 1 --weather fair --keep" in outcome.output


@pytest.mark.plain
@pytest.mark.parametrize(("words", "played"), [([], "1"), (["--failures", "2"], "2"), (["--failures", "0"], "3")])
def test_the_first_failure_ends_the_run(monkeypatch, words, played):
    """An option allows more failures."""
    monkeypatch.setattr(lifecycle, "lease", lifecycle.forget)
    outcome = run("--seeds", "5..7", "--weather", "fair", "--seconds", "1", "--no-shrink", *words)
    assert outcome.exit_code == 1
    assert f"{played} failed" in outcome.output


@pytest.mark.plain
def test_processes_finish_only_the_seeds_they_have_begun(monkeypatch):
    """Seeds that wait for a process when the first seed fails are cancelled."""
    monkeypatch.setattr(lifecycle, "lease", lifecycle.forget)
    outcome = run("--seeds", "5..40", "--weather", "fair", "--seconds", "1", "--no-shrink", "--jobs", "2")
    assert outcome.exit_code == 1
    played = re.search(r"(\d+) seeds?, (\d+) failed", outcome.output)
    assert played is not None
    assert 1 <= int(played[2]) <= int(played[1]) < 12


@pytest.mark.plain
def test_a_run_that_writes_a_report_goes_on_after_a_failure(tmp_path, monkeypatch):
    """No person waits for such a run."""
    monkeypatch.setattr(lifecycle, "lease", lifecycle.forget)
    report = tmp_path / "report"
    run("--seeds", "5..6", "--weather", "fair", "--seconds", "1", "--no-shrink", "--report", str(report))
    assert "2 seeds, 2 failed" in report.read_text()


@pytest.mark.plain
def test_an_interrupt_while_a_failure_shrinks_ends_with_the_summary(monkeypatch):
    """It also shows the command that replays the failure."""

    def interrupted(*words):
        signal.raise_signal(signal.SIGTERM)
        return shrink(*words)

    monkeypatch.setattr(lifecycle, "lease", lifecycle.forget)
    monkeypatch.setattr(disque_py.simulator.main, "shrink", interrupted)
    outcome = run("--seeds", "5", "--weather", "fair", "--seconds", "1")
    assert outcome.exit_code == 1
    assert "again: bin/disque-sim --seeds 5 --seconds 1 --weather fair" in outcome.output
    assert "1 seed, 1 failed" in outcome.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_world_raises_the_interrupt_and_the_handler_does_not(number):
    """Compiled code takes an exception in a multiplication of large numbers for a lack of memory, and aborts."""
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with interrupting_worlds():
        signal.raise_signal(number)
        assert World.is_interrupted
        with pytest.raises(KeyboardInterrupt):
            simulate(draw(1, 1_000, weather="fair"))
    assert not World.is_interrupted
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_one_seed_can_be_read():
    """The output is the transcript."""
    outcome = run("--seeds", "2", "--weather", "fair", "--transcript")
    assert " → " in outcome.output


def test_claims_and_locks_can_be_played_alone():
    outcome = run("--focus", "claims", "--seeds", "2", "--seconds", "1")
    assert outcome.exit_code == 0
    assert "1 seed, 0 failed" in outcome.output
    assert Order(2, 1.0, "", "", "claims").command("") == "bin/disque-sim --seeds 2 --seconds 1 --focus claims"


def test_the_version_is_printed():
    assert run("--version").output == f"disque-sim {__version__}\n"


def test_ranges_of_seeds_are_read():
    """Both ends are played."""
    assert list(seeds_of("7")) == [7]
    assert list(seeds_of("7..9")) == [7, 8, 9]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--seeds", "x"], "neither a number nor FIRST..LAST"),
        (["--seeds", "5..1"], "'5..1' has no seeds: write the smaller number first"),
        (["--keep", "this"], "is none of"),
        (["--weather", "snow"], "there is no weather 'snow'; the kinds are fair, "),
        (["--jobs", "0"], "0 is not in the range x>=1"),
        (["--seconds", "0"], "is not in the range x>=0.1"),
        (["--minutes", "-1"], "is not in the range x>0"),
        (["--report", "/no/such/directory/x"], "/no/such/directory is missing, or can't be written"),
    ],
)
def test_invalid_options_are_refused(words, text):
    """The error comes before a seed is played."""
    result = run(*words)
    assert (result.exit_code, text in " ".join(result.output.split())) == (2, True), result.output


def test_a_report_that_does_not_fit_is_one_sentence(tmp_path):
    (tmp_path / "report.new").symlink_to("/dev/full")
    result = run("--seeds", "1", "--weather", "fair", "--seconds", "1", "--report", str(tmp_path / "report"))
    assert result.exit_code == 1
    told = f"Error: --report {tmp_path}/report can't be written: No space left on device; name another file\n"
    assert result.output.endswith(told)


@pytest.mark.plain
def test_the_report_is_a_file(tmp_path, monkeypatch):
    """It has the summary, then each failure with the command that replays it."""
    report = tmp_path / "report"
    assert run("--seeds", "1..3", "--weather", "fair", "--report", str(report)).exit_code == 0
    assert "3 seeds, 0 failed" in report.read_text()
    monkeypatch.setattr(lifecycle, "lease", lifecycle.forget)
    run("--seeds", "5", "--weather", "fair", "--seconds", "1", "--no-shrink", "--report", str(report))
    assert report.read_text().rstrip().endswith("bin/disque-sim --seeds 5 --seconds 1 --weather fair")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_ends_the_run_with_the_summary(tmp_path, jobs):
    """SIGTERM does the same. Seeds that had begun are counted."""
    report = tmp_path / "report"
    command = [sys.executable, "-m", "disque_py.simulator.main", "--seeds", "1..100000", "--seconds", "0.2"]
    command += ["--weather", "fair", "--jobs", jobs, "--report", str(report)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            while not report.exists() and process.poll() is None:
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert ", 0 failed; " in output
    assert ", 0 failed; " in report.read_text()
