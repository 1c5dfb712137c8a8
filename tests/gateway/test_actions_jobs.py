"""Operations on one job: a change of its time, and its history."""

from __future__ import annotations

import dataclasses

import pytest

from disque_py.client import AsyncDisque
from disque_py.gateway.actions import jobs
from gateways import until


def test_a_waiting_job_is_rescheduled_promoted_and_canceled(gateway, queue):
    job = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b", "delay_ms": 600_000}).json["id"]
    assert gateway.post(f"/v1/jobs/{job}/reschedule", {"delay_ms": 500_000}).json == {"changed": 1}
    assert gateway.post(f"/v1/jobs/{job}/promote").json == {"changed": 1}
    assert gateway.get(f"/v1/jobs/{job}").json["status"] == "pending"
    assert gateway.post(f"/v1/jobs/{job}/cancel").json == {"changed": 1}


def test_the_history_of_a_job_comes_from_all_nodes(gateway, queue):
    job = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).json["id"]
    gateway.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 2000})
    gateway.post(f"/v1/jobs/{job}/complete")

    def events():
        found = [each["event"] for each in gateway.get(f"/v1/jobs/{job}/history").json["events"]]
        return found if "acked" in found else None

    assert until(events)[0] == "added"


def test_a_history_that_is_cut_is_not_complete(gateway, queue, monkeypatch):
    job = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).json["id"]
    gateway.post(f"/v1/jobs/{job}/complete")
    path = f"/v1/jobs/{job}/history"
    assert until(lambda: len(gateway.get(path).json["events"]) == 2)
    assert gateway.get(path).json["is_complete"]
    monkeypatch.setattr(jobs, "HISTORY_EVENTS", 1)
    found = gateway.get(path).json
    assert (len(found["events"]), found["is_complete"]) == (1, False)


def test_a_history_has_no_events_of_jobs_that_name_the_job(gateway, queue):
    job = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).json["id"]
    other = gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b", "meta": {"parent": job}}).json["id"]
    assert until(lambda: gateway.get(f"/v1/jobs/{other}/history").json["events"])
    assert {each["job_id"] for each in until(lambda: gateway.get(f"/v1/jobs/{job}/history").json["events"])} == {job}


@pytest.mark.parametrize("rest", ['"', '","seq":1,"event":"added"}', '","seq":1,"event":"added","ts":1,"version":"2"}'])
def test_a_line_that_is_no_event_is_left_out_of_a_history(rest, gateway, queue, monkeypatch):
    other, job = (gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"}).json["id"] for _ in range(2))
    read = AsyncDisque.events_read

    async def with_a_bad_line(*args, **options):
        found = await read(*args, **options)
        lines = [
            f'{{"job_id":"{job}{rest}\n'.encode() if other.encode() in line else line
            for line in found.lines.splitlines(keepends=True)
        ]
        return dataclasses.replace(found, lines=b"".join(lines))

    monkeypatch.setattr(AsyncDisque, "events_read", with_a_bad_line)
    path = f"/v1/jobs/{job}/history"
    assert [each["event"] for each in until(lambda: gateway.get(path).json["events"])] == ["added"]
