"""job_commands.py: disque-admin job."""

from __future__ import annotations

import json

import pytest

from scripted_queues import JOB, JOB_ID, NIL, reply

PEEKED = reply([["mail", JOB_ID, "Dear Ada", "meta", ["tenant", "a"]]])


def test_add_prints_the_id(admin):
    line = "job add mail hello --delay 500ms --retry 1m --attempts 5 --meta tenant=a"
    result = admin(line, ADDJOB=reply(JOB_ID))
    assert result.output == f"{JOB_ID}\n"
    assert b" ".join(result.node.requests[-1]) == (
        b"ADDJOB mail hello 5000 DELAYMS 500 RETRY 60 ATTEMPTS 5 META tenant a"
    )


def test_a_body_may_come_from_standard_input(admin):
    assert admin("job add mail -", stdin="Dear\nAda", ADDJOB=reply(JOB_ID)).node.requests[-1][2] == b"Dear\nAda"


def test_show_asks_the_whole_cluster(admin):
    result = admin(f"job show {JOB_ID}", SHOW=reply(JOB))
    assert result.node.requests[-1][-1] == b"CLUSTER"
    assert "2 delivered, 3 of 5 left" in result.output
    assert json.loads(admin(f"job show {JOB_ID} --json", SHOW=reply(JOB)).output)["meta"] == {"tenant": "a"}


def test_a_job_that_no_node_knows_is_an_error(admin):
    result = admin(f"job show {JOB_ID}", SHOW=NIL)
    assert (result.exit_code, "No linked node has the job" in result.output) == (1, True)
    assert f"`disque-admin job wait {JOB_ID}` prints its end" in result.output


def test_peek_shows_jobs_with_their_metadata(admin):
    result = admin("job peek mail -n 3 --where tenant=a --status errored", QPEEK=PEEKED)
    assert b" ".join(result.node.requests[-1]) == b"QPEEK mail 3 WHERE tenant a WITHMETA STATUS errored CLUSTER"
    assert result.output.splitlines()[1].split() == [JOB_ID, "tenant=a", "Dear", "Ada"]
    assert json.loads(admin("job peek mail --json", QPEEK=PEEKED).output)["body"] == "Dear Ada"
    assert "No pending jobs" in admin("job peek mail", QPEEK=b"*-1\r\n").output


@pytest.mark.parametrize(("command", "word"), [("cancel", "CANCELJOB"), ("retry", "ENQUEUE"), ("promote", "PROMOTE")])
@pytest.mark.parametrize("count", [0, 1])
def test_the_exit_status_tells_whether_all_jobs_were_changed(admin, command, word, count):
    result = admin(f"job {command} {JOB_ID}", **{word: b":%d\r\n" % count})
    assert result.exit_code == 1 - count
    assert result.output.startswith(f"{count} of 1 job ")


@pytest.mark.parametrize(
    ("end", "code", "text"),
    [
        (["completed", "12 pages", None], 0, "completed: 12 pages"),
        (["completed", None, None], 0, "completed"),
        (["unknown", None, None], 0, "gone"),
        (["errored", None, "ValueError: no"], 1, "errored: ValueError: no"),
        (["canceled", None, None], 1, "canceled"),
        (["expired", None, None], 1, "expired"),
    ],
)
def test_wait_prints_the_end_of_a_job_that_no_node_has_any_more(admin, end, code, text):
    """The nodes know the end of a job for longer than the job."""
    result = admin(f"job wait {JOB_ID}", SHOW=NIL, WAITJOB=reply([[JOB_ID, *end]]))
    assert (result.exit_code, result.output) == (code, f"{text}\n")


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("errored", 1), ("canceled", 1)])
def test_wait_polls_a_server_without_waitjob(admin, status, code):
    result = admin(f"job wait {JOB_ID}", SHOW=reply({**JOB, "status": status}))
    assert (result.exit_code, result.output) == (code, f"{status}: ValueError: no\n")


def test_wait_ends_after_its_timeout(admin):
    running = reply([[JOB_ID, "running", None, None]])
    result = admin(f"job wait {JOB_ID} --timeout 50ms", WAITJOB=running)
    assert result.node.requests[-1] == [b"WAITJOB", JOB_ID.encode(), b"TIMEOUT", b"50"]
    assert (result.exit_code, "is not over: running" in result.output) == (1, True)
    result = admin(f"job wait {JOB_ID} --timeout 50ms", SHOW=reply(JOB))
    assert (result.exit_code, "is not over: running" in result.output) == (1, True)


def test_move_prints_how_many_jobs_were_moved(admin):
    result = admin(f"job move {JOB_ID} {JOB_ID} --to other", MOVEJOB=b":1\r\n")
    assert result.node.requests[-1] == [b"MOVEJOB", JOB_ID.encode(), JOB_ID.encode(), b"TO", b"other"]
    assert (result.exit_code, "1 of 2 jobs moved to 'other'" in result.output) == (1, True)
    assert admin(f"job move {JOB_ID} --to other", MOVEJOB=b":1\r\n").exit_code == 0
    assert admin(f"job move {JOB_ID}").exit_code == 2


def test_reschedule_sends_the_given_options(admin):
    result = admin(f"job reschedule {JOB_ID} --delay 1500ms --priority -3", RESCHEDULE=b":1\r\n")
    assert b" ".join(result.node.requests[-1][2:]) == b"DELAYMS 1500 PRIORITY -3"
    assert admin(f"job reschedule {JOB_ID} --delay 5s", RESCHEDULE=b":0\r\n").exit_code == 1
    assert admin(f"job reschedule {JOB_ID}").exit_code == 2
