"""redis-py: blocking, pipelined and asyncio, in both protocols."""

import asyncio
import sys

import redis
import redis.asyncio


def blocking(port, **options):
    """A job's life, errors, nil, INFO and CONFIG as redis-py parses them."""
    client = redis.Redis(port=port, **options)
    assert client.ping()
    registered = client.info()["registered_jobs"]
    assert client.echo("hello") == b"hello"
    assert client.execute_command("HELLO")[0] == 1
    job_id = client.execute_command("ADDJOB", "redis-tour", "body", 0)
    assert isinstance(job_id, bytes)
    assert len(job_id) == 40
    assert client.execute_command("QLEN", "redis-tour") == 1
    assert client.execute_command("GETJOB", "FROM", "redis-tour") == [[b"redis-tour", job_id, b"body"]]
    assert client.execute_command("SHOW", job_id)[:2] == [b"id", job_id]
    assert client.execute_command("ACKJOB", job_id) == 1
    assert client.execute_command("GETJOB", "NOHANG", "FROM", "redis-tour") is None
    with_counters = client.execute_command("ADDJOB", "redis-tour", "two", 0)
    got = client.execute_command("GETJOB", "WITHCOUNTERS", "FROM", "redis-tour")
    assert got == [[b"redis-tour", with_counters, b"two", b"nacks", 0, b"additional-deliveries", 0]]
    assert client.execute_command("FASTACK", with_counters) == 1
    try:
        client.execute_command("ACKJOB", "nonsense")
    except redis.ResponseError as error:
        assert str(error).startswith("BADID"), error
    else:
        raise AssertionError("a bad id was accepted")
    pipeline = client.pipeline(transaction=False)
    for number in range(10):
        pipeline.execute_command("ADDJOB", "redis-tour", f"body {number}", 0)
    assert client.execute_command("FASTACK", *pipeline.execute()) == 10
    assert client.info()["registered_jobs"] == registered
    assert "maxmemory" in client.config_get("maxmemory")
    client.client_setname("tour")
    assert client.client_getname() in (b"tour", "tour")
    assert any(each["name"] == "tour" for each in client.client_list())
    assert len(client.time()) == 2
    client.close()


async def asynchronous(port):
    """The same connection under asyncio, briefly."""
    client = redis.asyncio.Redis(port=port)
    assert await client.ping()
    job_id = await client.execute_command("ADDJOB", "redis-tour", "body", 0)
    assert await client.execute_command("GETJOB", "FROM", "redis-tour") == [[b"redis-tour", job_id, b"body"]]
    assert await client.execute_command("ACKJOB", job_id) == 1
    await (client.aclose() if hasattr(client, "aclose") else client.close())


port = int(sys.argv[1])
blocking(port)
blocking(port, protocol=2)
blocking(port, protocol=3)
asyncio.run(asynchronous(port))
