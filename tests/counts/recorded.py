"""The recorded counts: tests/counts/recorded.json, for each minor version of Python.

    PYTHONPATH=functions:. python -m tests.counts            # print what is measured beside what is recorded
    PYTHONPATH=functions:. python -m tests.counts --record   # record what is measured

A count may fall. It rises only on purpose: with `--record` (or `make regenerate`), in the commit that gives the reason.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypedDict

from tests.counts.counting import bytes_of, calls_of
from tests.counts.works import WORKS

PLACE: Final = Path(__file__).with_name("recorded.json")
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
# Their functions are counted too.
PACKAGES: Final = ("boto3", "botocore", "cramjam", "pydantic", "urllib3")
# The size of an object depends on what the interpreter was built with, and on which dictionary has grown before.
BYTES_TOLERANCE: Final = 0.03


class Count(TypedDict):
    """Function calls, and the most bytes held at a time."""

    calls: int
    bytes: int


class Recorded(TypedDict):
    """The counts of one version of Python with these versions of packages."""

    packages: dict[str, str]
    counts: dict[str, Count]


def installed() -> dict[str, str]:
    """Return the versions of the packages whose functions are counted."""
    return {name: version(name) for name in PACKAGES}


def measure(name: str) -> Count:
    """Return the counts of one work."""
    return Count(calls=calls_of(WORKS[name]()), bytes=bytes_of(WORKS[name]()))


def load() -> dict[str, Recorded]:
    """Return what is recorded, by version of Python."""
    found: dict[str, Recorded] = json.loads(PLACE.read_text(encoding="utf-8")) if PLACE.exists() else {}
    return found


def record() -> None:
    """Replace the counts of this version of Python by those measured."""
    everything = load()
    former = everything.get(PYTHON, Recorded(packages={}, counts={}))["counts"]
    counts = {name: steady(measure(name), former.get(name)) for name in WORKS}
    everything[PYTHON] = Recorded(packages=installed(), counts=counts)
    PLACE.write_text(json.dumps(everything, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def steady(measured: Count, recorded: Count | None) -> Count:
    """Return what to record; bytes that differ by no more than the tolerance are recorded as they were."""
    if recorded is None or abs(measured["bytes"] - recorded["bytes"]) > recorded["bytes"] * BYTES_TOLERANCE:
        return measured
    return Count(calls=measured["calls"], bytes=recorded["bytes"])


def excess(measured: Count, recorded: Count) -> str | None:
    """Return how much more is measured than recorded; None if it is not more."""
    if measured["calls"] > recorded["calls"]:
        return f"{measured['calls']:,} function calls, recorded are {recorded['calls']:,}"
    if measured["bytes"] > recorded["bytes"] * (1 + BYTES_TOLERANCE):
        return f"{measured['bytes']:,} bytes held, recorded are {recorded['bytes']:,}"
    return None
