"""What is done for a thousand files at once comes to the same as one by one."""

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delegation.removal.orphans.index import Candidate, CandidateWriter, candidates_of
from delegation.removal.orphans.place import END, Eligible, Equal, joined, joined_all
from delegation.removal.orphans.subtraction import compared
from delegation.storage.base import PlanStore
from delegation.storage.listing.model import ListedObject
from delegation.storage.locations import Root
from delegation.storage.memory import MemoryPlanStore

KEYS = st.text(alphabet="ab/._%2F#?\n\x00é-=", min_size=1, max_size=8)
PATHS = st.one_of(
    KEYS.map(lambda key: f"s3://lake/{key}"), KEYS.map(lambda key: f"s3a://l\x00ake/{key}"), KEYS, st.just("s3:///a")
)
EQUAL = Equal(authorities={"lake": "sea"})


@given(st.lists(PATHS, max_size=6))
@example(["s3://lake/a/b", "s3://lake/a//b"])
@example(["s3://lake/a", "s3://lake2/a"])
@example(["s3://lake/.a", "s3://lake/a"])
@example(["s3://lake/a/", "s3://lake/b"])
def test_paths_are_joined_together_as_one_by_one(paths: list[str]) -> None:
    assert joined_all(paths, EQUAL) == [text for path in paths for text in joined(path, EQUAL)]


def test_plain_paths_are_not_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegation.removal.orphans.place.joined", None)
    paths = [f"s3://lake/wh/t/data/p={number}/part-{number}.parquet" for number in range(3)]
    assert joined_all(paths, EQUAL) == [f"{path.removeprefix('s3://lake/')}{END}s3://sea" for path in paths]


@given(st.lists(st.tuples(KEYS, st.integers(0, 20), st.sampled_from(['"e"', '"e\x00"'])), max_size=5))
@example([("metadata/version-hint.text", 0, '"e"'), ("a", 0, '"e"')])
@example([("_a", 0, '"e"')])
@example([("a/_b=1/c", 0, '"e"'), ("a/_h/c", 0, '"e"')])
def test_a_page_is_admitted_as_its_objects_are(found: list[tuple[str, int, str]]) -> None:
    eligible = Eligible(Root.of("s3://lake/wh/t"), 10, frozenset({"_b="}))
    page = [ListedObject(f"wh/t/{key}", 1, etag, modified) for key, modified, etag in found]
    assert eligible.some(page, 20) == [one for one in page if eligible.admits(one, 20)]


@given(st.lists(st.builds(Candidate, st.text(), st.integers(0), st.text(), st.integers()), min_size=1, max_size=7))
def test_a_chunk_has_the_lines_that_json_has(some: list[Candidate]) -> None:
    some = [one for one in some if one.path.isprintable() and one.etag.isprintable()] or [Candidate("a", 1, '"e"', 2)]
    plans: PlanStore = MemoryPlanStore()
    writer = CandidateWriter(plans, "p", "", chunk_paths=3)
    stored = writer.extend(some[:5])
    stored = writer.extend(some[5:]) or stored
    assert stored == (len(some) >= 3)
    writer.flush()
    assert [chunk.count for chunk in writer.chunks] == [len(some[at : at + 3]) for at in range(0, len(some), 3)]
    assert [one for rows in candidates_of(plans, [("p", writer.chunks)]) for one in rows] == some


TEXTS = st.tuples(st.sampled_from("abcd"), st.sampled_from(["s3://lake", "s3://sea", "s3://lake\n", "s3://\x00lake"]))


def cut(items: list[Any], at: list[int]) -> list[list[Any]]:
    """Return lists that are not empty, cut at some places."""
    ends = sorted({min(one, len(items)) for one in at} | {len(items)})
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False) if start < end]


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), min_size=1, unique=True),
    st.lists(TEXTS, unique=True),
    st.lists(st.integers(0, 8)),
    st.lists(st.integers(0, 8)),
)
@example([("a", 0), ("a", 1)], [("a", "s3://sea")], [1], [])
@example([("a", 0), ("a", 1)], [("a", "s3://lake")], [1], [])
@example([("a", 0)], [("a", "s3://lake\n")], [], [])
def test_rows_are_compared_in_lists_as_one_by_one(
    found: list[tuple[str, int]], needed: list[tuple[str, str]], cuts: list[int], more: list[int]
) -> None:
    """Rows of one path, and what is needed for them, may be in several lists."""
    rows = sorted((f"{key}{END}s3://lake{END}path-{key}-{copy}{END}etag", 1, 1) for key, copy in found)
    texts = sorted(f"{key}{END}{prefix}" for key, prefix in needed)
    left, mismatched, count = [], [], 0
    for batch in compared(iter(cut(rows, cuts)), iter(cut(texts, more))):
        count += batch.needed
        left += batch.left
        mismatched += [row for row in batch.left if row[0].partition(END)[0] in batch.others]
    own = [row for row in rows if (row[0][0], "s3://lake") in needed]
    assert left == [row for row in rows if row not in own]
    assert count == len(own)
    elsewhere = {key for key, of_key in groupby(sorted(needed), lambda one: one[0]) if list(of_key)}
    assert mismatched == [row for row in left if row[0][0] in elsewhere]


def test_needed_files_without_candidates_are_not_collected() -> None:
    """A location may have few old files, and a table millions."""
    rows = [("a\x00s3://lake\x00path\x00etag", 1, 1), ("z\x00s3://lake\x00path\x00etag", 1, 1)]
    texts = [[f"b{number}{END}s3://sea"] for number in range(9)]
    (batch,) = compared(iter([rows]), iter(texts))
    assert batch.others == set()
    assert json.dumps(batch.left)
