"""Batch operations equal those on single paths: canonical URIs, guards, writing and reading chunks."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.errors import GuardRefused
from delegation.iceberg.paths import TYPES, TableFile
from delegation.removal.chunks import ChunkWriter, Phase, read_chunk
from delegation.removal.deletes import PlanGuard
from delegation.removal.errors import PlanTampered
from delegation.removal.path_guard import PathGuard
from delegation.removal.purge.requests import PurgeOptions
from delegation.storage.locations import Roots, canonical, canonical_all
from delegation.storage.memory import MemoryPlanStore
from tests.kit.plans import plan_index

TAILS = st.text(alphabet='ab/.\n ,"\\é😀\x00\x7f%+', max_size=6)
SPELLED = st.builds(
    "{}{}{}".format,
    st.sampled_from(["s3://b/", "s3://bb/", "s3a://b/", "S3://b/", "s3://b", "s3://-/", "file:///", "file:/a/"]),
    TAILS,
    st.sampled_from(["", "", "", "#", "?", "/..", "/..x"]),
)
KEYS = TAILS.filter(lambda tail: tail and ".." not in tail.split("/"))
PATHS = st.builds("s3://{}/{}".format, st.sampled_from(["b/t", "b/t/sub", "b/t2", "c"]), KEYS)
ROOTS = Roots(["s3://b/t"])


@given(
    st.one_of(
        st.lists(SPELLED, max_size=4),
        st.lists(TAILS.map("s3://b/{}".format), max_size=4),
        st.lists(TAILS.map("file:///b/{}".format), max_size=4),
    )
)
def test_canonical_uris_of_many_paths_equal_those_of_each(paths: list[str]) -> None:
    try:
        expected = [canonical(path) for path in paths]
    except GuardRefused as error:
        with pytest.raises(type(error)):
            canonical_all(paths)
    else:
        assert canonical_all(paths) == expected


@given(
    st.lists(PATHS, min_size=1, max_size=8, unique=True),
    st.sets(PATHS, max_size=3),
    st.sets(PATHS, max_size=2),
    st.sampled_from([PurgeOptions(), PurgeOptions(outside="delete")]),
    st.sampled_from([None, Roots(["s3://b/t"]), Roots(["s3://b/t/sub", "s3://b/t2"])]),
    st.sampled_from([Roots(["s3://b/t"]), Roots(["s3://b/t/sub"]), Roots(["s3://c"])]),
    st.sampled_from([Roots([]), Roots(["s3://b/t/sub"]), Roots(["s3://b"]), Roots(["s3://b/t2", "s3://c"])]),
)
def test_guards_decide_for_many_paths_as_for_each(
    paths: list[str],
    shared: set[str],
    foreign: set[str],
    options: PurgeOptions,
    covered: Roots | None,
    own: Roots,
    others: Roots,
) -> None:
    rows = [(path, 8, 1) for path in sorted(paths)]
    one_by_one, at_once = (PathGuard(ROOTS, covered, options, own=own, neighbour_roots=others) for _ in range(2))
    expected = [
        (one_by_one.verdict(path, shared=path in shared, foreign=path in foreign), (path, 8, 1))
        for path in sorted(paths)
    ]
    groups = list(at_once.verdicts(rows, shared=shared, foreign=foreign))
    assert [(verdict, row) for verdict, group in groups for row in group] == expected
    assert at_once.counted() == one_by_one.counted()
    deleted = [path for verdict, (path, _, _) in expected if not verdict]
    assert not [path for path in deleted if others.contains(path) and not own.contains(path)]


@given(st.lists(PATHS, min_size=1, max_size=8), st.booleans())
def test_a_chunk_with_a_path_that_may_not_be_deleted_is_refused(paths: list[str], covered: bool) -> None:
    index = plan_index(roots=ROOTS.uris, covered=("s3://b/t/sub/",) if covered else None)
    allowed = Roots(index.covered) if index.covered else ROOTS
    if all(allowed.contains(path) for path in paths):
        PlanGuard(index).check_all(paths, "chunk")
    else:
        with pytest.raises(PlanTampered):
            PlanGuard(index).check_all(paths, "chunk")


@given(
    st.lists(st.tuples(PATHS, st.integers(0, len(TYPES) - 1), st.integers(0, 1 << 62)), min_size=1, max_size=9),
    st.sampled_from(["", "outside"]),
    st.integers(1, 4),
)
def test_a_chunk_is_json_lines_and_is_read_as_written(rows: list[tuple[str, int, int]], why: str, most: int) -> None:
    store = MemoryPlanStore()
    writer = ChunkWriter(store, "plan", Phase.DATA, chunk_paths=most)
    writer.extend(rows[:2], why)
    writer.extend(rows[2:], why)
    writer.flush()
    data = [gzip.decompress(store.get(f"plan/{chunk.name}")).decode() for chunk in writer.chunks]
    kept = {"kept": why} if why else {}
    assert "".join(data) == "".join(
        json.dumps({"path": path, "type": TYPES[rank], "size": size} | kept, ensure_ascii=False) + "\n"
        for path, rank, size in rows
    )
    assert [record for chunk in writer.chunks for record in read_chunk(store, "plan", chunk)] == [
        TableFile(*row) for row in rows
    ]
    assert [chunk.count for chunk in writer.chunks[:-1]] == [most] * (len(writer.chunks) - 1)
    assert sum(chunk.bytes for chunk in writer.chunks) == sum(size for _, _, size in rows)
    for chunk, lines in zip(writer.chunks, data, strict=True):
        paths = [json.loads(line)["path"] for line in lines.rstrip("\n").split("\n")]
        assert (chunk.first, chunk.last) == (paths[0], paths[-1])
    assert {name: tuple(total) for name, total in writer.totals.items()} == {
        TYPES[one].value: (
            sum(rank == one for _, rank, _ in rows),
            sum(size for _, rank, size in rows if rank == one),
        )
        for _, one, _ in rows
    }
