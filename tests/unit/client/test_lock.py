"""Locks with scripted nodes: extension, loss, and the end of the work. Real nodes: tests/integration/test_locks.py."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import AsyncExitStack, ExitStack

import pytest

from client_node import HANG_UP, SILENCE, Node, bulk, wait_until
from disque_py.client import AsyncDisque, Disque
from disque_py.client.errors import FencedError, LockDoneError, LockHeldError, LockLostError, NoQuorumError
from disque_py.client.lock import IN_USE

GRANTED = b"*3\r\n:7\r\n:2\r\n:1\r\n"
HELD = b"*-1\r\n"
FENCED = b"-FENCED A later claim is known\r\n"
NO_MAJORITY = b"-NOQUORUM no majority of the voters answered\r\n"


def lock_node(letter="a", acquire=GRANTED, extend=b":300\r\n", release=b":1\r\n", show=b"*-1\r\n"):
    """Return a node that answers LOCK. An answer may be a list, whose last element is repeated."""
    answers = {b"ACQUIRE": acquire, b"EXTEND": extend, b"RELEASE": release, b"SHOW": show}

    def answer(words):
        found = answers[words[1]]
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        return found(words) if callable(found) else found

    return Node(letter, {"LOCK": answer})


def sent(node, name):
    return [words for words in node.named("LOCK") if words[1] == name.encode()]


def test_a_lock_has_a_fence_and_attempts():
    """Each owner's name is unique."""
    with lock_node() as node, Disque(node.address) as client:
        lock = client.lock("l", lease=30, attempts=3)
        with lock:
            assert (lock.fence, lock.attempt, lock.attempts_left) == (7, 2, 1)
            assert lock.is_held
            assert not lock.is_last_attempt
            assert 29 < lock.left_s < 30
        assert not lock.is_held
        assert sent(node, "RELEASE")[0][2:] == [b"l", lock.owner.encode(), b"7"]
        assert client.lock("l").owner != lock.owner


def test_a_lease_is_extended_in_the_background():
    with lock_node() as node, Disque(node.address) as client, client.lock("l", lease=0.3) as lock:
        wait_until(lambda: len(sent(node, "EXTEND")) > 3)
        assert lock.is_held
        assert sent(node, "EXTEND")[0][2:] == [b"l", lock.owner.encode(), b"7", b"300"]


def test_an_extension_without_an_answer_goes_to_another_node():
    """The same applies to an extension that no majority of the voters confirms."""
    with lock_node("a", extend=SILENCE) as a, lock_node("b", extend=[NO_MAJORITY, b":900\r\n"]) as b:
        a.peers, b.peers = [b], [a]
        with Disque(a.address, b.address) as client, client.lock("l", lease=0.9) as lock:
            wait_until(lambda: len(sent(b, "EXTEND")) > 2)
            assert lock.is_held


def test_a_lock_of_another_owner_is_lost_at_once():
    """The callback runs once, and leaving the block raises an error."""
    lost = []
    with lock_node(extend=FENCED) as node, Disque(node.address) as client:
        lock = client.lock("l", lease=1, on_lost=lost.append).__enter__()
        assert lock.lost.wait(5)
        assert not lock.is_held
        with pytest.raises(LockLostError):
            lock.check()
        with pytest.raises(LockLostError):
            lock.__exit__(None, None, None)
        wait_until(lambda: lost == [lock])


def test_a_lost_lock_is_reported_once():
    """A later attempt to end the work is refused, too."""
    lost = []
    with lock_node(extend=FENCED, release=b":0\r\n") as node, Disque(node.address) as client:
        lock = client.lock("l", lease=1, on_lost=lost.append).acquire()
        wait_until(lambda: lost == [lock])
        with pytest.raises(LockLostError):
            lock.done(60)
        assert lost == [lock]


def test_a_lock_that_no_node_extends_is_lost_by_the_clock():
    """The lock does not wait for the reply to a request in flight."""
    with lock_node(extend=SILENCE) as node, Disque(node.address, timeout=60) as client:
        lock = client.lock("l", lease=0.5).acquire()
        assert lock.lost.wait(5)
        assert lock.left_s == 0.0
        assert lock.release()


def test_an_error_of_the_block_is_not_covered_by_the_loss():
    with lock_node(extend=FENCED) as node, Disque(node.address) as client:
        lock = client.lock("l", lease=0.3).__enter__()
        lock.lost.wait(5)
        error = KeyError("of the block")
        lock.__exit__(KeyError, error, None)
        assert len(sent(node, "RELEASE")) == 1


def test_the_end_of_the_work_is_remembered():
    """The end of the block sends no second release."""
    with lock_node() as node, Disque(node.address) as client:
        with client.lock("l") as lock:
            lock.done(60)
            assert not lock.is_held
        assert [words[5:] for words in sent(node, "RELEASE")] == [[b"DONE", b"60000"]]


def test_an_end_that_comes_too_late_is_an_error():
    """Another owner has had the lock since."""
    with lock_node(release=b":0\r\n") as node, Disque(node.address) as client:
        with client.lock("l") as lock, pytest.raises(LockLostError):
            lock.done(60)
        assert lock.lost.is_set()


def test_an_end_that_no_majority_confirmed_may_be_tried_again():
    """The client extends the lease meanwhile."""
    release = [NO_MAJORITY, b":1\r\n"]
    with lock_node(release=release) as node, Disque(node.address, patience=0) as client:
        lock = client.lock("l", lease=0.3).acquire()
        with pytest.raises(NoQuorumError):
            lock.done(60)
        before = len(sent(node, "EXTEND"))
        wait_until(lambda: len(sent(node, "EXTEND")) > before)
        lock.done(60)


def test_a_lock_that_is_not_given_back_ends_with_its_lease():
    """The block ends without an error."""
    with lock_node(release=HANG_UP) as node, Disque(node.address, patience=0) as client, client.lock("l", lease=0.3):
        pass


def refuses_the_first_owner():
    """Return the answer to RELEASE of a node that reaches the voters only later."""
    owners = []

    def release(words):
        owners.append(words[3])
        return NO_MAJORITY if words[3] == owners[0] else b":1\r\n"

    return release


def test_a_release_without_an_answer_ends_no_later_lock():
    """It may arrive late. So the next lock of the object has another owner."""
    with lock_node(release=refuses_the_first_owner()) as node, Disque(node.address) as client:
        lock = client.lock("l", lease=0.1)
        for _ in range(3):
            with lock:
                pass
        first, second, third = (words[3] for words in sent(node, "ACQUIRE"))
        assert first != second == third


def test_a_release_without_an_answer_ends_no_later_lock_under_asyncio():
    async def run():
        async with AsyncDisque(node.address) as client:
            lock = client.lock("l", lease=0.1)
            for _ in range(3):
                async with lock:
                    pass

    with lock_node(release=refuses_the_first_owner()) as node:
        asyncio.run(run())
        first, second, third = (words[3] for words in sent(node, "ACQUIRE"))
        assert first != second == third


def test_the_reasons_for_no_lock():
    answers = [HELD, b"-LOCKDONE The work under this lock is done\r\n", GRANTED]
    with lock_node(acquire=answers) as node, Disque(node.address) as client:
        lock = client.lock("l", timeout=0)
        with pytest.raises(LockHeldError):
            lock.acquire()
        with pytest.raises(LockDoneError):
            lock.acquire()
        with lock, pytest.raises(RuntimeError, match=IN_USE):
            lock.acquire()


def test_a_request_for_a_lock_is_sent_again_with_the_same_owner():
    """Spec CL9: the reply was lost."""
    with lock_node(acquire=[HANG_UP, GRANTED]) as node, Disque(node.address) as client, client.lock("l"):
        first, second = sent(node, "ACQUIRE")
        assert first[:6] == second[:6]


def test_a_lease_that_began_long_ago_is_extended_before_the_block():
    """The node waited for another owner, but the lease is counted from before the request. Spec CL8."""

    def slow(words):
        if words[1] == b"ACQUIRE":
            time.sleep(0.5)
            return GRANTED
        return b":1\r\n"

    node = Node(answers={"LOCK": slow})
    with node, Disque(node.address) as client, client.lock("l", lease=1, timeout=5) as lock:
        assert len(sent(node, "EXTEND")) == 1
        assert lock.left_s > 0.6


def test_a_forked_child_does_not_hold_its_parents_lock():
    with lock_node() as node, Disque(node.address) as client, client.lock("l") as lock:
        owner = lock.owner
        child = os.fork()
        if not child:
            os._exit(0 if not lock.is_held and lock.owner != owner else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert lock.is_held


def test_threads_need_objects_of_their_own():
    with lock_node() as node, Disque(node.address) as client, client.lock("l") as lock:
        errors = []

        def take():
            try:
                lock.acquire()
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        assert errors == [IN_USE]


def test_the_locks_of_a_client_share_connections():
    """Each of them had a client of its own, with its connections and their HELLO."""
    with lock_node() as node, Disque(node.address) as client:
        with ExitStack() as held:
            for number in range(20):
                held.enter_context(client.lock(f"l{number}"))
        with client.lock("l"):
            pass
        assert node.greetings == 2  # The second one is that of the client's own connection.


def test_an_extension_does_not_wait_for_those_of_other_locks():
    """A connection has one answer at a time, so each extension needs one. Twenty of 0.2 s take no 4 s."""

    def extend(words):
        time.sleep(0.2)
        return b":3000\r\n"

    with lock_node(extend=extend) as node, Disque(node.address) as client, ExitStack() as held:
        locks = [held.enter_context(client.lock(f"l{number}", lease=3)) for number in range(20)]
        wait_until(lambda: len(sent(node, "EXTEND")) >= 40)
        assert all(lock.is_held for lock in locks)


def test_a_lock_outlives_its_client():
    with lock_node() as node:
        client = Disque(node.address)
        lock = client.lock("l", lease=0.3).acquire()
        client.close()
        wait_until(lambda: len(sent(node, "EXTEND")) > 3)
        assert lock.release()
        with client.lock("l") as later:
            assert later.is_held


def test_a_forked_child_takes_locks_with_connections_of_its_own():
    with lock_node() as node, Disque(node.address) as client, client.lock("l") as lock:
        child = os.fork()
        if not child:
            with client.lock("m") as other:
                os._exit(0 if other.is_held and not lock.is_held else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert node.greetings == 3
        assert client.lock("n").acquire().release()
        assert node.greetings == 3


# -- asyncio -----------------------------------------------------------------------------------------


def test_a_task_extends_the_lease_under_asyncio():
    async def main(node):
        async with AsyncDisque(node.address) as client, client.lock("l", lease=0.3) as lock:
            await asyncio.sleep(0.6)
            assert lock.is_held
            await lock.done(60)

    with lock_node() as node:
        asyncio.run(main(node))
        assert len(sent(node, "EXTEND")) >= 3
        assert len(sent(node, "RELEASE")) == 1


def test_the_locks_of_a_client_share_connections_under_asyncio():
    """A cancelled request for a lock closes its own connection, and leaves the other locks alone."""

    async def main(node):
        async with AsyncDisque(node.address) as client, AsyncExitStack() as held:
            locks = [await held.enter_async_context(client.lock(f"l{number}", lease=0.3)) for number in range(20)]
            count = node.greetings
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.lock("busy", timeout=30).acquire()
            await asyncio.sleep(0.6)
            assert all(lock.is_held for lock in locks)
            return count

    with lock_node(acquire=lambda words: SILENCE if words[2] == b"busy" else GRANTED) as node:
        assert asyncio.run(main(node)) <= 5  # The client's own one, that of the search, and some in use.


def test_each_event_loop_has_connections_of_its_own_for_locks():
    async def main(client):
        async with client.lock("l") as lock:
            assert lock.is_held

    with lock_node() as node:
        client = AsyncDisque(node.address)
        asyncio.run(main(client))
        asyncio.run(main(client))


def test_a_lost_lock_wakes_a_task():
    lost = []

    async def main(node):
        client = AsyncDisque(node.address)
        async with client, client.lock("l", lease=0.5, on_lost=lost.append) as lock:
            await asyncio.wait_for(lock.lost.wait(), 5)

    with lock_node(extend=SILENCE) as node, pytest.raises(LockLostError):
        asyncio.run(main(node))
    assert len(lost) == 1


def test_the_log_has_no_empty_reason_of_a_loss(caplog):
    """The event loop is blocked until the lease is over, so an extension has no time at all."""

    async def main(node):
        async with AsyncDisque(node.address) as client:
            lock = await client.lock("l", lease=0.2).acquire()
            await asyncio.sleep(0.01)
            time.sleep(0.3)  # noqa: ASYNC251  # it blocks the loop on purpose
            await asyncio.wait_for(lock.lost.wait(), 5)
            await lock.release()

    with lock_node(extend=SILENCE) as node:
        asyncio.run(main(node))
    assert caplog.messages == ["the lock 'l' is lost: its lease ended, or another owner has it"]


def test_a_lost_lock_is_reported_once_under_asyncio():
    lost = []

    async def main(node):
        async with AsyncDisque(node.address) as client:
            lock = await client.lock("l", lease=0.5, on_lost=lost.append).acquire()
            await asyncio.wait_for(lock.lost.wait(), 5)
            with pytest.raises(LockLostError):
                await lock.done(60)

    with lock_node(extend=FENCED, release=b":0\r\n") as node:
        asyncio.run(main(node))
    assert len(lost) == 1


def test_a_cancelled_request_for_a_lock_hangs_up():
    """The node then knows that it need not wait any more. The lock object can be used again."""

    async def main(node):
        async with AsyncDisque(node.address) as client:
            lock = client.lock("l", timeout=30)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await lock.acquire()
            async with lock:
                assert lock.fence == 7

    with lock_node(acquire=[SILENCE, GRANTED]) as node:
        asyncio.run(main(node))


def shown(owner):
    """Return the reply to LOCK SHOW for this owner, with the fence 7."""
    numbers = ("fence", 7), ("attempt", 1), ("ms-left", 900), ("done-ms-left", 0)
    return b"*10\r\n" + bulk("owner") + bulk(owner) + b"".join(bulk(name) + b":%d\r\n" % n for name, n in numbers)


@pytest.mark.parametrize(("owner", "count"), [(None, 1), ("shared", 0)])
def test_a_lock_that_was_granted_at_the_moment_of_the_cancellation_is_given_back(owner, count):
    """A name that the program gave may be that of another lock object, which has the lock."""

    async def main(node):
        async with AsyncDisque(node.address) as client:
            lock = client.lock("l", timeout=30, owner=owner)
            acquiring = asyncio.create_task(lock.acquire())
            async with asyncio.timeout(10):
                while not sent(node, "ACQUIRE"):
                    await asyncio.sleep(0.005)
            acquiring.cancel()
            with pytest.raises(asyncio.CancelledError):
                await acquiring

    with lock_node(acquire=SILENCE, show=lambda words: shown(sent(node, "ACQUIRE")[0][3])) as node:
        asyncio.run(main(node))
        assert [words[4] for words in sent(node, "RELEASE")] == [b"7"] * count


@pytest.mark.parametrize(("owner", "count"), [(None, 1), ("shared", 0)])
def test_a_lock_that_is_granted_after_the_cancellation_is_given_back(owner, count):
    """The request was on its way. A LOCK SHOW over another connection may be faster, and find no owner yet."""

    async def main(node):
        async with AsyncDisque(node.address) as client:
            acquiring = asyncio.create_task(client.lock("l", timeout=30, owner=owner).acquire())
            async with asyncio.timeout(10):
                while not sent(node, "ACQUIRE"):
                    await asyncio.sleep(0.005)
            acquiring.cancel()
            with pytest.raises(asyncio.CancelledError):
                await acquiring

    with lock_node(acquire=SILENCE) as node:
        node.last_word = GRANTED
        asyncio.run(main(node))
        assert [words[4] for words in sent(node, "RELEASE")] == [b"7"] * count


def test_an_extension_that_is_refused_is_an_error_of_the_plain_method():
    with lock_node(extend=FENCED) as node, Disque(node.address) as client, pytest.raises(FencedError):
        client.extend_lock("l", "me", 7, 1000)
