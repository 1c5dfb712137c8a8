"""dwq, a distributed work queue built on pydisque."""

import sys

from dwq import Disque, Job

Disque.connect([f"127.0.0.1:{sys.argv[1]}"])
assert Disque.connected()
job_id = Job.add("dwq", {"command": "true"}, control_queues=["dwq-control", "$jobid"], retry=60)
assert list(Disque.qstat(["dwq"])) == ["dwq"]
assert "dwq" in Disque.qscan()
[job] = Job.get(["dwq"])
assert (job.job_id, job.queue_name, job.body["command"]) == (job_id, "dwq", "true")
assert (job.nacks, job.additional_deliveries) == (0, 0)
job.working("busy")
job.nack()
[job] = Job.get(["dwq"], timeout=1000, count=3)
assert job.nacks == 1
job.done({"status": 0})
for queue in ("dwq-control", job_id):
    assert Job.wait(queue) == [{"job_id": job_id, "state": "done", "result": {"status": 0}}]
cancelled = [Job.add("dwq", {}) for _ in range(3)]
Job.cancel_all(cancelled)
assert Job.get(["dwq"], nohang=True) == []
