"""A sample of the ways in which a store can be wrong; `make hostile` runs all of them."""

import pytest

from tests.faults.hostile import runs
from tests.faults.hostile.runs import SIZES, Run, Worlds
from tests.faults.hostile.ways import WAYS

SAMPLE = {
    "NoSuchBucket once": 1,
    "NoSuchBucket for one key": 1,
    "code 404 for each key": 1,
    "a wrong endpoint": 1,
    "NoSuchBucket to the last look": 1,
    "both lists": 1,
    "an error without key": 1,
    "another kind of answer": 1,
    "all is confirmed and kept": 1,
    "MissingContentMD5 in spite of one": 12,
    "501 without a body": 12,
    "deleted without key": 14,
    "two keys in one entry": 14,
    "byte by byte without end": 14,
    "3 GB in a 200": 14,
}


@pytest.fixture(scope="module")
def worlds() -> Worlds:
    return Worlds()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in runs.AWS.items():
        monkeypatch.setenv(name, value)


LATER = {"byte by byte without end", "3 GB in a 200", "NoSuchBucket to the last look"}
FALLEN = [(name, line) for name, line in SAMPLE.items() if line != 12 and name not in LATER]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=f"issue 12, line {line}: {name}"))
        for name, line in FALLEN
    ],
)
def test_a_store_that_is_wrong_leaves_no_file_of_a_purged_table(worlds: Worlds, name: str) -> None:
    row = Run(worlds, "small", runs.inline).play(name, WAYS[name])
    assert row.problems == []
    assert (row.runs, row.left, row.foreign) == (2, 0, 0)


def test_there_are_at_least_sixty_ways() -> None:
    assert len(WAYS) >= 60
    assert len(SIZES) == 3
