"""schedule_commands.py: disque-admin schedule."""

from __future__ import annotations

import json

from scripted_queues import reply

INFO = {
    "name": "nightly", "cron": "0 4 * * *", "every": None, "tz": "UTC", "catchup": "last", "overlap": "allow",
    "queue": "reports", "body": "b", "options": ["RETRY", "60"], "paused": 0, "next": 1_700_000_000_000, "last": None,
    "last-id": None, "fired": 3, "missed": 1, "behind": 0,
}  # fmt: skip
NEXT = reply([1_700_000_000_000])
NONE = b"*-1\r\n"


def test_list_shows_a_row_per_schedule(admin):
    answers = {"SCHEDULE_LIST": reply(["nightly"]), "SCHEDULE_GET": reply(INFO)}
    row = admin("schedule list", **answers).output.splitlines()[1]
    assert "0 4 * * *" in row
    assert "2023-11-14 22:13:20" in row
    assert json.loads(admin("schedule list --json", **answers).output)["queue"] == "reports"


def test_show_has_a_line_per_field(admin):
    lines = admin("schedule show nightly", SCHEDULE_GET=reply(INFO), SCHEDULE_NEXT=NEXT).output.splitlines()
    assert any(line.split() == ["options", "RETRY", "60"] for line in lines)
    shown = admin("schedule show nightly --json", SCHEDULE_GET=reply(INFO), SCHEDULE_NEXT=NEXT)
    assert json.loads(shown.output)["next"] == "2023-11-14T22:13:20+00:00"


def test_an_object_has_the_body_as_it_is(admin):
    answers = {"SCHEDULE_GET": reply({**INFO, "body": "a\nb"}), "SCHEDULE_NEXT": NEXT}
    assert json.loads(admin("schedule show nightly --json", **answers).output)["body"] == "a\nb"


def test_set_takes_any_bytes(admin):
    result = admin("schedule set s reports \udcff --every 30s", SCHEDULE_SET=b"+OK\r\n", SCHEDULE_NEXT=NEXT)
    assert any(words[-1] == b"\xff" for words in result.node.requests)


def test_set_sends_all_words(admin):
    result = admin(
        "schedule set s reports body --every 30s --option RETRY --option 60",
        SCHEDULE_SET=b"+OK\r\n",
        SCHEDULE_NEXT=NEXT,
    )
    sent = next(words for words in result.node.requests if words[:2] == [b"SCHEDULE", b"SET"])
    line = b" ".join(sent).decode()
    assert line == "SCHEDULE SET s EVERY 30s TZ UTC CATCHUP last OVERLAP allow QUEUE reports BODY body RETRY 60"
    assert "2023-11-14 22:13:20" in result.output
    assert admin("schedule set s reports body").exit_code == 2


def test_changes_of_an_unknown_schedule_fail(admin):
    for word in ("pause", "resume", "delete --yes"):
        form = word.split()[0].upper().replace("DELETE", "DEL")
        result = admin(f"schedule {word} nope", **{f"SCHEDULE_{form}": b":0\r\n"})
        assert (result.exit_code, "There is no schedule 'nope'" in result.output) == (1, True)
    assert admin("schedule show nope", SCHEDULE_GET=NONE, SCHEDULE_NEXT=b"*0\r\n").exit_code == 1
    assert admin("schedule next nope", SCHEDULE_GET=NONE, SCHEDULE_NEXT=b"*0\r\n").exit_code == 1


def test_changes_print_their_effect(admin):
    assert "paused" in admin("schedule pause s", SCHEDULE_PAUSE=b":1\r\n").output
    assert "is resumed" in admin("schedule resume s", SCHEDULE_RESUME=b":1\r\n", SCHEDULE_NEXT=NEXT).output
    assert "deleted" in admin("schedule delete s", stdin="y\n", SCHEDULE_DEL=b":1\r\n").output
    assert admin("schedule run s", SCHEDULE_RUN=b"+D-x\r\n").output == "D-x\n"
    assert admin("schedule next s --count 1", SCHEDULE_NEXT=NEXT).output == "2023-11-14 22:13:20\n"
