"""disque_py/simulator/world/disk_errors.py: the operations that a fault strikes, and the error that they raise."""

from __future__ import annotations

import errno

from disque_py.simulator.world.disk_errors import CrashError, Fault, os_error


def strikes(fault: Fault, count: int = 6) -> list[bool]:
    return [fault.strikes("write", "a") for _ in range(count)]


def test_a_fault_waits_for_its_turn_and_passes():
    assert strikes(Fault(["write"], errno.EIO, 2, 1, False, None)) == [False, False, True, False, False, False]


def test_a_fault_may_stay():
    assert strikes(Fault(["write"], errno.EIO, 4, -1, False, None)) == [False] * 4 + [True] * 2


def test_other_operations_and_files_are_not_counted():
    fault = Fault(["sync", "write"], errno.EIO, 0, 1, False, lambda name: name == "b")
    assert not fault.strikes("read", "b")
    assert not fault.strikes("write", "a")
    assert fault.strikes("sync", "b")


def test_errors_are_of_the_class_the_system_would_raise():
    error = os_error(errno.ENOENT, "a")
    assert isinstance(error, FileNotFoundError)
    assert str(error) == "[Errno 2] No such file or directory: 'a'"


def test_no_code_catches_its_own_death_by_accident():
    assert not issubclass(CrashError, Exception)
