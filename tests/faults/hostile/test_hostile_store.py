"""A sample of the ways in which a store can be wrong; `make hostile` runs all of them."""

import pytest

from tests.faults.hostile import runs, table
from tests.faults.hostile.runs import SIZES, Row, Run, Worlds, inline
from tests.faults.hostile.stories import STORIES, StoryRun
from tests.faults.hostile.table import ENGINES, Cell, failures, lines, play_spark
from tests.faults.hostile.ways import KEY_BY_KEY, LIARS, PARTICULAR, WAYS

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


OF_STORIES = ["lists: the first page again", "lists: a prefix above", "lists: an empty 200", "reads: an empty object"]


@pytest.fixture(scope="module")
def worlds() -> Worlds:
    return Worlds()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in runs.AWS.items():
        monkeypatch.setenv(name, value)


def problems(cells: list[Cell], names: list[str], engine: str, sizes: tuple[str, ...]) -> list[str]:
    return failures(cells, names=names, engines=(engine,), sizes=sizes)


@pytest.mark.parametrize(("name", "size"), SAMPLE)
def test_a_store_that_is_wrong_leaves_no_file_of_a_purged_table(worlds: Worlds, name: str, size: str) -> None:
    row = Run(worlds, size, inline).play(name, WAYS[name])
    assert problems([Cell("inline", size, row)], [name], "inline", (size,)) == []


REFUSING = {name: way for name, way in KEY_BY_KEY.items() if "key by key" not in name}


@pytest.mark.parametrize("name", ["MD5 demanded", *REFUSING, *PARTICULAR])
@pytest.mark.parametrize("size", ["small", "resumed"])
def test_a_store_that_is_only_particular_is_purged_at_once(worlds: Worlds, name: str, size: str) -> None:
    row = Run(worlds, size, inline).play(name, WAYS[name])
    assert (row.purged, row.problems) == (2, [])


@pytest.mark.parametrize("operation", STORIES)
@pytest.mark.parametrize("name", ["405 MethodNotAllowed", "InternalError for absent keys", *OF_STORIES])
def test_no_expiry_and_no_removal_deletes_what_is_needed(operation: str, name: str) -> None:
    row = StoryRun(operation).play(name, WAYS[name])
    assert problems([Cell("inline", operation, row)], [name], "inline", (operation,)) == []


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_spark_leaves_no_file_of_a_purged_table_either() -> None:
    names = ["NoSuchBucket for each key", "both lists", "all is confirmed and kept", "NotImplemented"]
    assert problems(play_spark(names, ("small", "resumed")), names, "spark", ("small", "resumed")) == []


def test_the_table_fails_for_runs_that_did_not_happen_and_for_what_they_left() -> None:
    def one(**counts: int) -> list[Cell]:
        return [Cell("spark", "small", Row("a", **counts))]

    assert problems(one(runs=2, purged=2), ["a"], "spark", ("small",)) == []
    for wrong in (one(runs=1), one(runs=2, left=1), one(runs=2, foreign=1), []):
        assert problems(wrong, ["a"], "spark", ("small",))
    assert problems(one(runs=2), ["a"], "spark", ("small", "large")) == ["a, spark, large: 0 of 2 runs happened"]
    assert problems(one(runs=2), ["a", "b"], "spark", ("small",)) == ["b, spark, small: 0 of 2 runs happened"]
    assert len(failures(one(runs=2), names=["a"], engines=ENGINES, sizes=SIZES)) == 5


def test_one_table_has_a_row_for_each_way_and_totals_for_each_engine_and_size() -> None:
    cells = [Cell(engine, "small", Row("a", runs=2, purged=1)) for engine in ENGINES]
    found = [line.split() for line in lines(cells)]
    assert found == [
        ["way", "runs", "PURGED", "left", "foreign"],
        ["a", "4", "2", "0", "0"],
        ["all", "ways,", "inline,", "small", "2", "1", "0", "0"],
        ["all", "ways,", "spark,", "small", "2", "1", "0", "0"],
        ["all", "4", "2", "0", "0"],
    ]


def test_make_hostile_asks_for_every_way_size_and_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(names: list[str], sizes: tuple[str, ...], *_engine: object) -> list[Cell]:
        asked.append((len(names), sizes))
        return [Cell("inline", "small", Row("a"))]

    asked: list[tuple[int, tuple[str, ...]]] = []
    monkeypatch.setattr(table, "play", nothing)
    monkeypatch.setattr(table, "play_spark", nothing)
    monkeypatch.setattr(table, "play_stories", lambda names, operations: asked.append((len(names), operations)) or [])
    monkeypatch.setattr("sys.argv", ["table"])
    printed: list[str] = []
    assert table.main(printed.append) == 1
    assert asked == [(len(WAYS), SIZES)] * 2 + [(len(WAYS), ["expiry", "removal"])]
    stories = 2 * (len(WAYS) - len(LIARS))
    assert sum("0 of 2 runs happened" in line for line in printed) == len(WAYS) * 6 + stories


def test_there_are_at_least_sixty_ways() -> None:
    assert len(WAYS) >= 60
    assert len(SIZES) == 3
