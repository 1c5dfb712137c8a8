"""redis-py: blocking, pipelined and asyncio, with its defaults, and with the given protocol version.

Usage: redis_tour.py <port> 2|3 [hiredis]
"""

import asyncio
import sys
import threading
import time

import redis
import redis.asyncio


def blocking(port, **options):
    """A job's life, errors, nil, INFO and CONFIG as redis-py parses them."""
    client = redis.Redis(port=port, **options)
    assert client.ping()
    check_connection(client, options)
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
    assert "addjob" in client.command()
    assert client.command_count() == len(client.command())
    client.client_setname("tour")
    assert client.client_getname() in (b"tour", "tour")
    assert any(each["name"] == "tour" for each in client.client_list())
    assert client.client_id() > 0
    assert len(client.time()) == 2
    waits(client, port)
    client.close()


def check_connection(client, options):
    """Check that the connection uses the given protocol version and the given parser."""
    connection = client.connection_pool.get_connection("PING")
    parser = type(connection._parser).__name__
    client.connection_pool.release(connection)
    assert ("hiredis" in sys.argv) == ("Hiredis" in parser), parser
    assert int(connection.protocol) == options.get("protocol", int(connection.protocol))


def waits(client, port):
    """Check that another connection wakes a GETJOB without TIMEOUT, and that one with TIMEOUT ends with nil."""
    producer = threading.Timer(0.2, redis.Redis(port=port).execute_command, ("ADDJOB", "redis-tour", "late", 0))
    producer.start()
    [[_, job_id, body]] = client.execute_command("GETJOB", "FROM", "redis-tour")
    assert body == b"late"
    assert client.execute_command("ACKJOB", job_id) == 1
    began = time.monotonic()
    assert client.execute_command("GETJOB", "TIMEOUT", 100, "FROM", "redis-tour") is None
    assert 0.1 <= time.monotonic() - began < 5
    producer.join()


async def asynchronous(port, **options):
    """Check the same connection under asyncio, briefly."""
    client = redis.asyncio.Redis(port=port, **options)
    assert await client.ping()
    job_id = await client.execute_command("ADDJOB", "redis-tour", "body", 0)
    assert await client.execute_command("GETJOB", "FROM", "redis-tour") == [[b"redis-tour", job_id, b"body"]]
    assert await client.execute_command("ACKJOB", job_id) == 1
    await (client.aclose() if hasattr(client, "aclose") else client.close())


port, protocol = int(sys.argv[1]), int(sys.argv[2])
for chosen in ({}, {"protocol": protocol}):
    blocking(port, **chosen)
    asyncio.run(asynchronous(port, **chosen))
