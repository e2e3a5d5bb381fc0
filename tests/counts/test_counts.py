"""Function calls and memory of the hot paths may only fall; tests/counts/recorded.py says how to record a count."""

import json
import os
import subprocess
import sys

import pytest

from tests.counts.counting import bytes_of, calls_of
from tests.counts.recorded import PYTHON, Count, Recorded, excess, installed, load
from tests.counts.works import WORKS
from tests.paths import ROOT

ANEW = "record them on purpose: `make regenerate`"


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """The counts of this interpreter; those of another version, or with other packages, say nothing about it."""
    found = load().get(PYTHON)
    if found is None:
        pytest.skip(f"no counts are recorded for Python {PYTHON}: {ANEW}")
    if found["packages"] != installed():
        pytest.skip(f"the counts are of other versions of packages ({found['packages']}): {ANEW}")
    return found


@pytest.fixture(scope="module")
def measured() -> dict[str, Count]:
    """What a new process measures: other tests leave caches, log levels and variables behind."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'functions'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.counts", "--json"],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    found: Recorded = json.loads(done.stdout)
    return found["counts"]


def test_the_versions_of_constraints_are_those_of_the_counts() -> None:
    """A change of constraints.txt that would silence the counts has to record them."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower().splitlines()
    constrained = dict(line.split("==") for line in lines if "==" in line)
    for python, one in load().items():
        assert {name: constrained[name] for name in one["packages"]} == one["packages"], f"Python {python}: {ANEW}"


def test_every_work_is_recorded(recorded: Recorded) -> None:
    assert recorded["counts"].keys() == WORKS.keys(), ANEW


@pytest.mark.parametrize("name", WORKS)
def test_a_count_does_not_rise(name: str, recorded: Recorded, measured: dict[str, Count]) -> None:
    assert excess(measured[name], recorded["counts"][name]) is None, f"{name}: make it cheaper, or {ANEW}"


def test_a_second_run_a_call_for_each_key_and_a_copy_of_each_are_counted() -> None:
    keys = [f"key-{number}" for number in range(1_000)]

    def once() -> int:
        return len(",".join(keys))

    def twice() -> int:
        return once() + once()

    def copied() -> int:
        return len(",".join([f"{key}" + "x" for key in keys]))

    base = Count(calls=calls_of(once), bytes=bytes_of(once))
    assert excess(base, base) is None
    assert calls_of(lambda: [len(key) for key in keys]) >= 1_000
    assert "function calls" in str(excess(Count(calls=calls_of(twice), bytes=base["bytes"]), base))
    assert "bytes" in str(excess(Count(calls=base["calls"], bytes=bytes_of(copied)), base))
