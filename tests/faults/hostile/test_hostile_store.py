"""A sample of the ways in which a store can be wrong; `make hostile` runs all of them."""

import pytest

from tests.faults.hostile import runs, table
from tests.faults.hostile.runs import SIZES, Row, Run, Worlds, inline
from tests.faults.hostile.table import failures, lines, play_spark
from tests.faults.hostile.ways import WAYS

SAMPLE = [
    ("NoSuchBucket once", "small"),
    ("NoSuchBucket for one key", "large"),
    ("code 404 for each key", "small"),
    ("a wrong endpoint", "resumed"),
    ("NoSuchBucket to the last look", "small"),
    ("both lists", "large"),
    ("an error without key", "small"),
    ("another kind of answer", "resumed"),
    ("all is confirmed and kept", "small"),
    ("MD5 demanded", "small"),
    ("MissingContentMD5 in spite of one", "small"),
    ("501 without a body", "resumed"),
    ("deleted without key", "small"),
    ("two keys in one entry", "small"),
    ("byte by byte without end", "small"),
    ("3 GB in a 200", "small"),
    ("reads: a date that is none", "small"),
]


@pytest.fixture(scope="module")
def worlds() -> Worlds:
    return Worlds()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in runs.AWS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("name", "size"), SAMPLE)
def test_a_store_that_is_wrong_leaves_no_file_of_a_purged_table(worlds: Worlds, name: str, size: str) -> None:
    row = Run(worlds, size, inline).play(name, WAYS[name])
    assert failures([row], runs=2, ways=1) == []


@pytest.mark.parametrize("name", ["MD5 demanded", "MissingContentMD5 in spite of one", "501 without a body"])
def test_a_store_that_is_only_particular_is_purged_at_once(worlds: Worlds, name: str) -> None:
    assert Run(worlds, "small", inline).play(name, WAYS[name]).purged == 2


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_spark_leaves_no_file_of_a_purged_table_either() -> None:
    names = ["NoSuchBucket for each key", "both lists", "all is confirmed and kept", "NotImplemented"]
    assert failures(play_spark(names), runs=2, ways=len(names)) == []


def test_the_table_fails_for_runs_that_did_not_happen_and_for_what_they_left() -> None:
    assert failures([Row("a", runs=2, purged=2)], runs=2, ways=1) == []
    for wrong in (Row("a", runs=1), Row("a", runs=2, left=1), Row("a", runs=2, foreign=1)):
        assert failures([wrong], runs=2, ways=1)
    assert failures([], runs=2, ways=1)
    assert lines("inline", [Row("a", runs=2, purged=1)])[1].split() == ["a", "2", "1", "0", "0"]


@pytest.mark.xfail(strict=True, reason="issue 12, must show 2: Spark purges small tables only, in a table of its own")
def test_make_hostile_asks_for_every_way_size_and_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(names: list[str], *rest: object) -> list[Row]:
        asked.append((len(names), next((one for one in rest if isinstance(one, tuple)), None)))
        return []

    asked: list[tuple[int, object]] = []
    monkeypatch.setattr(table, "play", nothing)
    monkeypatch.setattr(table, "play_spark", nothing)
    monkeypatch.setattr("sys.argv", ["table"])
    printed: list[str] = []
    assert table.main(printed.append) == 1
    assert asked == [(len(WAYS), SIZES)] * 2
    assert sum("PURGED" in line for line in printed) == 1


def test_there_are_at_least_sixty_ways() -> None:
    assert len(WAYS) >= 60
    assert len(SIZES) == 3
