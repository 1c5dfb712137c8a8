"""cluster_bus/messages.py: each kind has a fixed number, and a name for traces."""

from __future__ import annotations

from cluster_bus import messages
from cluster_bus.messages import FIRST_JOB_KIND, NAMES


def test_the_numbers_of_kinds_about_jobs_are_fixed():
    """Nodes of other versions know these numbers. A new kind gets a new number."""
    assert {NAMES[kind]: kind for kind in sorted(NAMES) if kind >= FIRST_JOB_KIND} == {
        "REPLJOB": 32, "GOTJOB": 33, "REFUSED": 34, "HOLDERS": 35, "ENQUEUE": 36, "QUEUED": 37, "WILLQUEUE": 38,
        "LEASED": 39, "SETACK": 40, "GOTACK": 41, "DELJOB": 42, "NEEDJOBS": 43, "YOURJOBS": 44, "TOOK": 45,
        "SETTLED": 46, "INTEREST": 47, "HINT": 48, "PAUSE": 49, "LEFT": 50, "LEFT_OK": 51, "OUTCOME": 52,
        "ISKEY": 53, "KEYIS": 54, "OUTCOME_IS": 55, "CHANGED": 56, "ASKCHANGED": 57, "ACKATTEMPT": 58,
        "ASKJOBS": 59, "JOBSARE": 60, "DOJOBS": 61, "DIDJOBS": 62, "REPLMANY": 63, "SETTING": 64, "SETTINGS_HAVE": 65,
        "SETTINGS_DIGEST": 66, "ASKSETTINGS": 67, "QLENGTHS": 68, "GOTMANY": 69,
        "FILTER_INTEREST": 70, "FILTER_HINT": 71, "FILTER_NEED": 72,
        "HAVE": 80, "HAVEARE": 81, "RESTORED": 82, "SHORT": 83, "TAKETURN": 84,
        "QUESTION": 90, "ANSWER": 91, "TASK": 92, "TASK_STATE": 93, "SYNC": 94, "SYNCED": 95,
        "VOTERS": 110, "CLAIM": 111, "CLAIM_IS": 112, "RELEASE": 113, "RELEASED": 114,
        "VOTE": 115, "VOTE_IS": 116, "RECALL": 117, "RECALLED": 118,
        "FREED": 119, "CLAIM_ENDED": 120, "ACKFENCED": 121, "CLAIM_NEWEST": 122,
        "PATTERN_INTEREST": 132, "PATTERN_QUEUE": 133, "REPLACED": 134,
        "BATCHADD": 147, "BATCHGOT": 148, "BATCHSUM": 149, "BATCHFLUSH": 150, "BATCHFLUSHED": 151,
        "WAITFOR": 140, "WAITIS": 141, "JOBOVER": 142, "JOBHAS": 143, "NOWAIT": 144, "RESULT": 145, "PROGRESS": 146,
        "CAP_FOLLOW": 155, "CAP_ASK": 156, "CAP_GRANT": 157, "CAP_SETTLE": 158, "CAP_USE": 159,
    }  # fmt: skip


def test_membership_keeps_the_numbers_below():
    assert {NAMES[kind]: kind for kind in sorted(NAMES) if kind < FIRST_JOB_KIND} == {
        "HELLO": 1, "PROOF": 2, "PING": 3, "PONG": 4, "MEET": 5, "FAIL_NODE": 6,
    }  # fmt: skip


def test_reasons_of_refusals_differ():
    reasons = [value for name, value in vars(messages).items() if name.startswith("REFUSED_")]
    assert sorted(reasons) == [1, 2, 3, 4, 5, 6, 7]
