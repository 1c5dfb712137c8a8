"""pydisque: every method of its client."""

import sys

from pydisque.client import Client

client = Client([f"127.0.0.1:{sys.argv[1]}"])
client.connect()
assert client.info()
job_id = client.add_job("pydisque", "body", timeout=100, retry=5, ttl=60, maxlen=10)
assert client.qlen("pydisque") == 1
assert client.qpeek("pydisque", 1) == [[b"pydisque", job_id, b"body"]]
assert client.qstat("pydisque", return_dict=True)[b"len"] == 1
assert client.show(job_id, return_dict=True)[b"state"] == b"queued"
assert client.qscan(busyloop=True)[1] == [b"pydisque"]
assert client.jscan(queue="pydisque")[1] == [job_id]
assert client.get_job(["pydisque"]) == [(b"pydisque", job_id, b"body")]
assert client.working(job_id) == 5
client.nack_job(job_id)
assert client.get_job(["pydisque"], timeout=1000, count=5, withcounters=True) == [
    (b"pydisque", job_id, b"body", 1, 0)
]  # fmt: skip
client.ack_job(job_id)
assert client.get_job(["pydisque"], nohang=True) == []
assert client.get_job(["pydisque"], timeout=10) == []
other = client.add_job("pydisque", "other", asynchronous=True)
assert client.dequeue(other) == 1
assert client.enqueue(other) == 1
assert client.pause("pydisque", kw_in=True) in (b"in", "in")
assert client.pause("pydisque", kw_none=True) in (b"none", "none")
assert client.del_job(other) == 1
last = client.add_job("pydisque", "last", delay=1)
client.fast_ack(last)
assert client.show(last) is None
