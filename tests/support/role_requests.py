"""Requests for every operation, over HTTP and gRPC, and the roles that each needs."""

from __future__ import annotations

import time

import grpc

from disque_py.gateway.logins.grants import ROLES

# Roles that each role includes.
ALLOWED = {
    "read": {"read"},
    "bodies": {"read", "bodies"},
    "produce": {"produce"},
    "consume": {"read", "consume"},
    "operate": {"read", "operate"},
    "admin": set(ROLES),
}
# Arguments that make each operation's request complete; the queue and the job are the test's.
BODIES = {
    "enqueue": {"body": "b"},
    "move": {"to": "perm-to"},
    "move_job": {"to": "perm-to"},
    "put_queue": {"maxlen": 1000},
    "reschedule": {"delay_ms": 5},
    "find_jobs": {"keys": ["k"]},
    "change_jobs": {"action": "requeue", "status": "errored", "older_ms": 10**12},
}
# The role that each call needs.
CALL_ROLES = {
    "CreateQueue": "operate", "UpdateQueue": "operate", "DeleteQueue": "operate", "Cancel": "operate",
    "Requeue": "operate",
    "GetQueue": "read", "ListQueues": "read", "GetMessage": "read", "ListMessages": "read", "WaitMessage": "read",
    "GetDepth": "read", "Enqueue": "produce", "Dequeue": "consume", "Consume": "consume", "Complete": "consume",
    "Fail": "consume", "ExtendLease": "consume", "WatchEvents": "bodies",
}  # fmt: skip
INCLUDED = {"read": ("bodies", "consume", "operate")}


def ask(guarded, jobs, operation, queue, login):
    """Ask a gateway for an operation over HTTP. `jobs` has a job of each queue."""
    path = operation.path.replace("{queue}", queue).replace("{id}", jobs[queue]).replace("{name}", queue)
    if operation.form == "lines":
        headers = {"Content-Type": "application/x-ndjson"}
        return guarded.request(operation.verb, path, body=b'{"body":"b"}', headers=headers, login=login)
    value = BODIES.get(operation.name, {}) if operation.has_body else None
    if operation.name == "complete_batch":
        value = {"ids": [jobs[queue]]}
    query = f"?confirm={queue}&status=errored" if operation.name == "purge_queue" else ""
    return guarded.request(operation.verb, path + query, value, login=login)


def fields_of(name, queue, job):
    """Return the fields of a call's request."""
    if name in ("CreateQueue", "UpdateQueue"):
        return {"config": {"name": queue, "maxlen": 1000}}
    if name in ("Complete", "Fail", "ExtendLease", "Cancel", "Requeue", "GetMessage"):
        return {"id": job}
    if name == "DeleteQueue":
        return {"queue": queue, "confirm": queue}
    if name == "WaitMessage":
        return {"id": job, "timeout_ms": 1}
    return {} if name in ("ListQueues", "WatchEvents") else {"queue": queue}


def status_of(rpc, name, queue, job):
    """Return the status of a call."""
    try:
        if name == "Consume":
            next(rpc.stream(name, _consuming(rpc, queue), timeout=0.5), None)
        elif name == "WatchEvents":
            next(rpc(name, timeout=0.3), None)
        else:
            rpc(name, **fields_of(name, queue, job))
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def _consuming(rpc, queue):
    """Ask for a message, and keep the stream open until the broker has answered."""
    yield rpc.request("Consume", start={"queue": queue}, credit=1)
    time.sleep(0.3)
