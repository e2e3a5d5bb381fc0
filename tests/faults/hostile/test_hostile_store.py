"""A sample of the ways in which a store can be wrong; `make hostile` runs all of them."""

from collections import Counter
from itertools import product

import pytest

from tests.effort import sampled
from tests.faults.hostile import runs, table
from tests.faults.hostile.runs import SIZES, Run, Worlds, inline
from tests.faults.hostile.stories import STORIES, StoryRun
from tests.faults.hostile.ways import KEY_BY_KEY, LIARS, PARTICULAR, WAYS
from tests.kit.explorer import Tally

SAMPLE = [
    ("NoSuchBucket once", "small"),
    ("a wrong endpoint", "resumed"),
    ("an error without key", "small"),
    ("all is confirmed and kept", "small"),
    ("MissingContentMD5 in spite of one", "small"),
    ("byte by byte without end", "small"),
    ("reads: a date that is none", "small"),
]
MORE = [
    ("NoSuchBucket for one key", "large"),
    ("code 404 for each key", "small"),
    ("NoSuchBucket to the last look", "small"),
    ("both lists", "large"),
    ("another kind of answer", "resumed"),
    ("MD5 demanded", "small"),
    ("501 without a body", "resumed"),
    ("deleted without key", "small"),
    ("two keys in one entry", "small"),
    ("3 GB in a 200", "small"),
]
"""What a thorough run adds."""


OF_STORIES = ["lists: the first page again", "lists: a prefix above", "lists: an empty 200", "reads: an empty object"]


@pytest.fixture(scope="module")
def worlds() -> Worlds:
    return Worlds()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in runs.AWS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("name", "size"), sampled([*SAMPLE, *MORE], SAMPLE.__contains__))
def test_a_store_that_is_wrong_leaves_no_file_of_a_purged_table(worlds: Worlds, name: str, size: str) -> None:
    ended = Run(worlds, size, inline).play(name, WAYS[name])
    assert (ended.runs, ended.problems) == (2, [])


REFUSING = [name for name in KEY_BY_KEY if "key by key" not in name]
SHORT = {("405 MethodNotAllowed", "small"), ("an empty 200 to many", "small"), ("MD5 demanded", "resumed")}
SHORT |= {("InternalError for absent keys", "small"), ("conditions: 400", "resumed")}
PARTICULAR_STORES = sampled(product([*REFUSING, *PARTICULAR], ["small", "resumed"]), SHORT.__contains__)


@pytest.mark.parametrize(("name", "size"), PARTICULAR_STORES)
def test_a_store_that_is_only_particular_is_purged_at_once(worlds: Worlds, name: str, size: str) -> None:
    ended = Run(worlds, size, inline).play(name, WAYS[name])
    assert (ended.well, ended.problems) == (2, [])


@pytest.mark.parametrize("operation", STORIES)
@pytest.mark.parametrize("name", ["405 MethodNotAllowed", "InternalError for absent keys", *OF_STORIES])
def test_no_expiry_and_no_removal_deletes_what_is_needed(operation: str, name: str) -> None:
    ended = StoryRun(operation).play(name, WAYS[name])
    assert (ended.runs, ended.problems) == (2, [])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_spark_leaves_no_file_of_a_purged_table_either() -> None:
    names = ["NoSuchBucket for each key", "both lists", "all is confirmed and kept", "NotImplemented"]
    tally = table.spark_purges([(name, size) for name in names for size in ("small", "resumed")])
    assert (tally.ends.total(), tally.wrong) == (8, [])


def test_make_hostile_plays_every_way_size_and_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def played(name: str, cases: list[table.Case], play_one: object, *_: object) -> Tally:
        asked[name] = len(set(cases))
        return Tally(name, Counter({"done at once": len(cases)}), wrong.get(name, []))

    asked: dict[str, int] = {}
    wrong: dict[str, list[str]] = {}
    monkeypatch.setattr(table, "play_all", played)
    monkeypatch.setattr(table, "spark_purges", lambda cases: table.purges("spark", cases, inline))
    assert table.main([]) == 0
    sizes = len(WAYS) * len(SIZES)
    assert asked == {"inline": sizes, "spark": sizes, "upkeep": 2 * (len(WAYS) - len(LIARS))}
    wrong["upkeep"] = ["a file is needed and was deleted"]
    assert table.main(["--engine", "inline"]) == 1
    assert table.main(["--engine", "spark", "--operation", "expiry"]) == 1, "nothing was played"


def test_there_are_at_least_sixty_ways() -> None:
    assert len(WAYS) >= 60
    assert len(SIZES) == 3
