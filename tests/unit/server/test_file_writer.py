"""server/file_writer.py: a thread writes files in order, and reports each outcome on the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from disque_py.server.file_writer import FileWriter


@pytest.fixture
def file_writer():
    file_writer = FileWriter()
    yield file_writer
    file_writer.close()


def test_writes_are_done_by_a_thread_in_order_and_reported_on_the_loop(file_writer):
    notes = []

    async def main():
        loop = asyncio.get_running_loop()
        end = loop.create_future()
        for number in range(3):
            file_writer.write(
                lambda number=number: notes.append((number, threading.current_thread() is threading.main_thread())),
                lambda failure: notes.append((failure, threading.current_thread() is threading.main_thread())),
            )
        file_writer.write(lambda: None, end.set_result)
        await end

    asyncio.run(main())
    assert [note for note in notes if note[0] is not None] == [(number, False) for number in range(3)]
    assert notes.count((None, True)) == 3


def test_the_loop_goes_on_while_the_disk_is_slow(file_writer):
    gate = threading.Event()

    async def main():
        end = asyncio.get_running_loop().create_future()
        file_writer.write(lambda: gate.wait(5) and None, end.set_result)
        await asyncio.sleep(0.02)
        assert not end.done()
        gate.set()
        return await end

    assert asyncio.run(main()) is None


def test_an_error_of_the_system_is_reported(file_writer):
    def fail():
        raise OSError(28, "No space left on device")

    async def main():
        end = asyncio.get_running_loop().create_future()
        file_writer.write(fail, end.set_result)
        return await end

    assert asyncio.run(main()).errno == 28


def test_a_defect_goes_to_the_exception_handler_of_the_loop(file_writer):
    async def main():
        loop = asyncio.get_running_loop()
        caught = loop.create_future()
        loop.set_exception_handler(lambda _, context: caught.set_result(context["exception"]))
        file_writer.write(lambda: 1 // 0, lambda failure: pytest.fail("not for the client"))
        return await caught

    assert isinstance(asyncio.run(main()), ZeroDivisionError)


def test_closing_waits_for_ordered_writes_and_takes_no_more(file_writer):
    notes = []

    async def main():
        file_writer.write(lambda: notes.append("written"), lambda failure: None)
        file_writer.close()
        assert notes == ["written"]
        file_writer.write(lambda: notes.append("too late"), lambda failure: None)

    asyncio.run(main())
    assert notes == ["written"]


def test_the_loop_may_wait_for_a_quick_write_that_is_awaited(file_writer):
    async def main():
        notes = []
        for _ in range(100):  # A busy machine may not run the thread in time.
            file_writer.write(lambda: None, notes.append, is_awaited=True)
            file_writer.wait()
            if notes:
                break
        return notes

    assert asyncio.run(main()) == [None]


def test_a_write_that_is_not_awaited_is_reported_when_the_loop_goes_on(file_writer):
    async def main():
        notes = []
        end = asyncio.get_running_loop().create_future()
        file_writer.write(lambda: None, notes.append)
        file_writer.wait()
        assert notes == []
        file_writer.write(lambda: None, end.set_result)
        await end
        return notes

    assert asyncio.run(main()) == [None]


def test_closing_does_not_wait_for_ever(file_writer):
    gate = threading.Event()
    notes = []

    async def main():
        file_writer.write(lambda: gate.wait(10) and None, notes.append)
        return file_writer.close(lambda: None, 0.02)

    assert str(asyncio.run(main())) == "the disk doesn't answer"
    gate.set()
    assert notes == []


def test_the_last_file_is_written_after_the_others_and_its_error_is_returned(file_writer):
    notes = []

    def fail():
        notes.append("last")
        raise OSError(28, "No space left on device")

    async def main():
        file_writer.write(lambda: notes.append("first"), notes.append)
        return file_writer.close(fail)

    assert asyncio.run(main()).errno == 28
    assert notes == ["first", "last"]


def test_the_last_file_may_be_the_only_one(file_writer):
    notes = []

    async def main():
        return file_writer.close(lambda: notes.append("last"))

    assert asyncio.run(main()) is None
    assert notes == ["last"]
