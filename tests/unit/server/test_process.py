"""The process: pid file, limits, daemon mode, and deliberate exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from disque_py.server import process


def run(code, **options):
    """Run a child process that imports the module and executes `code`."""
    code = f"import os, sys, time\nfrom disque_py.server import process\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, **options)


def test_the_pid_file_is_written_and_removed(tmp_path):
    path = str(tmp_path / "disque.pid")
    process.write_pid_file(path)
    with open(path) as file:
        assert file.read() == f"{os.getpid()}\n"
    process.remove_pid_file(path)
    assert not os.path.exists(path)
    process.remove_pid_file(path)


def test_a_pid_file_of_another_process_is_left_alone(tmp_path):
    (tmp_path / "disque.pid").write_text("1\n")
    process.remove_pid_file(str(tmp_path / "disque.pid"))
    assert (tmp_path / "disque.pid").exists()


def limit_after(maxclients, soft, hard="hard"):
    """Return the result of raise_file_limit, and the limits afterwards."""
    result = run(
        "import resource\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        f"print(process.raise_file_limit({maxclients}), *resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    return [int(number) for number in result.stdout.split()]


def test_the_limit_of_open_files_is_raised_as_far_as_clients_and_links_need():
    """If only clients counted, a full node would have no descriptors for the links of a larger cluster. Spec D5."""
    assert limit_after(50, 100)[:2] == [50, 50 + process.RESERVED_FILES + process.LINK_FILES]


def test_if_the_limit_is_too_low_for_clients_and_links_clients_come_first():
    assert limit_after(150, 100, 300) == [150, 300, 300]
    assert limit_after(150, 250, 250) == [150, 250, 250]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may raise the hard limit")
def test_a_hard_limit_lowers_the_number_of_clients():
    result = run(
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))\n"
        "print(process.raise_file_limit(10000), resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    assert result.stdout == "168 (200, 200)\n"


def test_a_sufficient_limit_is_not_changed():
    assert limit_after(1, 1_100, 1_200) == [1, 1_100, 1_200]


def test_memory_and_cpu_are_numbers_of_this_process():
    assert 1_000_000 < process.rss_bytes() < 10_000_000_000
    assert len(process.cpu_seconds()) == 4
    assert process.cpu_seconds()[1] > 0


def test_standard_descriptors_that_are_closed_are_not_used_for_files(tmp_path):
    """A daemon redirects the standard descriptors, so it would lose files that got these numbers."""
    run(
        "os.closerange(0, 3)\n"
        "process.fill_standard_descriptors()\n"
        f"with open('{tmp_path}/result', 'w') as file:\n"
        "    print(file.fileno() > 2, [os.fstat(fd).st_rdev for fd in range(3)], file=file)\n"
    )
    assert (tmp_path / "result").read_text() == f"True {[os.stat(os.devnull).st_rdev] * 3}\n"


def test_the_process_that_starts_a_daemon_ends_when_the_daemon_is_ready(tmp_path):
    result = run(
        "report = process.daemonize()\n"
        "with open('pids', 'w') as file:\n"
        "    print(os.getpid(), os.getsid(0), os.getppid(), file=file)\n"
        "process.report_ready(report)\n"
        "print('unheard')\n",
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, os.getcwd()])},
    )
    assert (result.returncode, result.stdout) == (0, "")
    pid, session, _ = map(int, (tmp_path / "pids").read_text().split())
    assert pid != session


def test_the_process_that_starts_a_daemon_fails_if_the_daemon_dies():
    result = run("process.daemonize()\nprint('no port', file=sys.stderr)\nsys.stderr.flush()\nos._exit(3)")
    assert (result.returncode, result.stderr) == (1, "no port\n")


def test_the_program_can_be_started_again_with_its_arguments_in_the_same_process():
    result = run(
        "if process.was_restarted():\n"
        "    print(os.getpid(), process.RESTART_MARK in os.environ)\n"
        "else:\n"
        "    print(os.getpid(), flush=True)\n"
        "    start = os.getcwd()\n"
        "    os.chdir('/')\n"
        "    process.exec_again(start)\n"
    )
    first, second = result.stdout.splitlines()
    assert second == f"{first} False"


@pytest.mark.parametrize(("how", "number"), [("segfault", signal.SIGSEGV), ("assert", signal.SIGABRT)])
def test_crashing_on_purpose_dies_by_a_signal(how, number):
    code = f"import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nprocess.crash({how!r})"
    assert run(code).returncode == -number
