"""Where orphan files are looked for, which objects may be orphans, and which paths may name one file: pure rules."""

from dataclasses import MISSING, fields
from datetime import timedelta
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.errors import GuardRefused
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.removal.orphans.context import OrphanContext
from delegation.removal.orphans.details import ApprovalLimits, ListedAmount, share_of, waits_for
from delegation.removal.orphans.errors import AgeTooShort, LocationShared
from delegation.removal.orphans.place import (
    END,
    Eligible,
    Equal,
    Place,
    age_of,
    check_allowed,
    check_alone,
    hidden_partitions,
    joined,
    place_of,
)
from delegation.removal.orphans.subtraction import compared
from delegation.removal.path_guard import ORPHAN_AGE
from delegation.storage.listing.model import ListedObject
from delegation.storage.locations import Root, folded
from tests.kit.errors import coded

EQUAL = Equal()
DAY = 86_400


def metadata(location: str, **properties: str) -> ParsedMetadata:
    where = "file:///w/m.json" if location.startswith(("file:", "/")) else "s3://lake/m.json"
    document = {
        "format-version": 2,
        "table-uuid": "00000000-0000-4000-8000-000000000001",
        "location": location,
        "last-updated-ms": 1,
        "properties": properties,
    }
    return parse_metadata(where, document)


@pytest.mark.parametrize(
    "location",
    ["s3://lake", "s3://lake/", "s3://lake//", "s3://lake/wh//t", "s3://lake/wh/./t", "s3://lake/wh/../t", "file:///data",
     "s3://lake/a#b", "s3://lake/a?b", "gs://lake/t", "s3://lake--table-s3/t"],
)  # fmt: skip
def test_a_location_that_is_too_wide_or_not_clear_is_refused(location: str) -> None:
    with pytest.raises(GuardRefused, check=coded("LOCATION_TOO_WIDE")):
        place_of(metadata(location))


@pytest.mark.parametrize(
    ("location", "uri"),
    [("s3://lake/t", "s3://lake/t/"), ("s3a://lake/t/", "s3://lake/t/"), ("S3N://lake/a/t", "s3://lake/a/t/"),
     ("file:/data/t", "file:///data/t/"), ("/data/t", "file:///data/t/")],
)  # fmt: skip
def test_the_place_is_the_present_location_and_ends_in_a_slash(location: str, uri: str) -> None:
    write_path = {"write.data.path": "s3://elsewhere/x"} if location.startswith("s3") else {}
    assert place_of(metadata(location, **write_path)).uri == uri


@pytest.mark.parametrize(
    "other",
    ["s3://lake/wh/t", "s3a://lake/wh/t/", "s3://lake/wh/t/in", "s3://lake/wh", "s3://lake", "s3://lake/wh//t",
     "s3://lake/wh/%74", "s3://lake/wh/./t/x", "s3://lake/wh/u/../t", "s3://lake/wh/t#x"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["table", "view", "table of another format"])
def test_a_place_that_overlaps_another_one_is_refused(kind: str, other: str) -> None:
    with pytest.raises(LocationShared):
        check_alone(Root.of("s3://lake/wh/t"), [Place(kind, "x", other)], EQUAL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other", ["s3://lake/wh/t2", "s3://lake/wh/t 2", "s3://lake/wh/u/t", "s3://lake2/wh/t", "abfs://lake/wh/t", "x"]
)
def test_a_place_beside_another_one_is_not_refused(other: str) -> None:
    check_alone(Root.of("s3://lake/wh/t"), [Place("table", "x", other), Place("namespace", "ns", other)], EQUAL)


def test_a_namespace_may_contain_the_place_and_not_lie_in_it() -> None:
    root = Root.of("s3://lake/wh/t")
    check_alone(root, [Place("namespace", "ns", "s3://lake/wh"), Place("namespace", "ns", "s3://lake")], EQUAL)
    for inside in ("s3://lake/wh/t", "s3a://lake/wh/t/ns"):
        with pytest.raises(LocationShared):
            check_alone(root, [Place("namespace", "ns", inside)], EQUAL)


def test_equal_authorities_count_for_places_too() -> None:
    equal = Equal.of({"oss": "s3"}, {"access-point,lake": "lake"})
    with pytest.raises(LocationShared):
        check_alone(Root.of("s3://lake/wh/t"), [Place("table", "x", "oss://access-point/wh")], equal)


def test_protected_tables_and_those_without_gc_are_refused() -> None:
    check_allowed(metadata("s3://lake/t", **{"gc.enabled": "TRUE", "delegation.protected": "False"}))
    for properties, code in [
        ({"gc.enabled": "false"}, "GC_DISABLED"),
        ({"gc.enabled": "yes"}, "GC_DISABLED"),
        ({"delegation.protected": "ture"}, "TABLE_PROTECTED"),
    ]:
        with pytest.raises(GuardRefused, check=coded(code)):
            check_allowed(metadata("s3://lake/t", **properties))


def test_the_age_is_a_day_at_least_and_a_table_may_only_lengthen_it() -> None:
    three = timedelta(days=3)
    assert age_of(three, {}) == three
    assert age_of(three, {ORPHAN_AGE: "10d"}) == timedelta(days=10)
    assert age_of(three, {ORPHAN_AGE: "1s"}) == three
    with pytest.raises(AgeTooShort):
        age_of(timedelta(hours=23, minutes=59), {ORPHAN_AGE: "10d"})
    with pytest.raises(GuardRefused, check=coded("AGE_INVALID")):
        age_of(three, {ORPHAN_AGE: "long"})


def admitted(key: str, *, modified: int = 0, at: int = 4 * DAY, partitions: frozenset[str] = frozenset()) -> bool:
    eligible = Eligible(Root.of("s3://lake/wh/t"), 3 * DAY, partitions)
    return eligible.admits(ListedObject(key, 1, '"e"', modified), at)


@pytest.mark.parametrize(
    "key",
    ["wh/t", "wh/t/", "wh/t2/a", "wh/t/_tmp/a", "wh/t/data/.a.crc", "wh/t/_SUCCESS", "wh/t/dir/", "wh/t/a#b",
     "wh/t/a?b", "wh/t/a/../b", "wh/t/_p=1/a", "wh/t/metadata/version-hint.text"],
)  # fmt: skip
def test_hidden_unclear_and_foreign_keys_are_left_alone(key: str) -> None:
    assert not admitted(key)


@pytest.mark.parametrize("key", ["wh/t/a", "wh/t/data/a b", "wh/t//a", "wh/t/a%2Fb", "wh/t/x_y/.z=1/a"])
def test_visible_keys_are_candidates(key: str) -> None:
    assert admitted(key, partitions=frozenset({".z="}))


def test_directories_of_partition_fields_with_hidden_names_are_searched() -> None:
    found = hidden_partitions({"partition-specs": [{"fields": [{"name": "_p"}, {"name": "q"}]}, {"fields": None}]})
    assert found == {"_p="}
    assert admitted("wh/t/_p=1/a", partitions=found)
    assert not admitted("wh/t/_px=1/a", partitions=found)


def test_only_files_older_than_the_age_by_the_stores_clock_are_candidates() -> None:
    assert not admitted("wh/t/a", modified=DAY, at=4 * DAY)
    assert admitted("wh/t/a", modified=DAY - 1, at=4 * DAY)
    assert not admitted("wh/t/a", modified=9 * DAY, at=4 * DAY)


def names(path: str, equal: Equal = EQUAL) -> set[str]:
    return set(joined(path, equal))


@pytest.mark.parametrize(
    "spelled",
    ["s3a://lake/t/a b", "S3://lake/t/a b", "s3://lake/t/a%20b", "s3://lake/t//a b", "s3://lake/t/./a b",
     "s3://lake/t/x/../a b", "s3://lake/t/a%2520b", "s3://lake/t/a b#x", "unsupported:s3://lake/t/a b",
     "ambiguous:s3://lake/t/a b?x"],
)  # fmt: skip
def test_every_spelling_of_a_path_protects_its_object(spelled: str) -> None:
    assert names("s3://lake/t/a b") & names(spelled)


@pytest.mark.parametrize("other", ["s3://lake/t/a", "s3://lake/t/a b2", "s3://lake/t/a/b", "s3://lake2/t/a b"])
def test_other_paths_do_not(other: str) -> None:
    assert not names("s3://lake/t/a b") & names(other)


def test_schemes_and_authorities_are_compared_as_said() -> None:
    [path, other] = [next(iter(names(one))) for one in ("s3://lake/t/a", "abfs://acct/t/a")]
    assert path.partition(END)[0] == other.partition(END)[0]
    assert path != other
    equal = Equal.of({"abfs,wasb": "s3"}, {"acct": "lake"})
    assert names("s3://lake/t/a", equal) == names("wasb://acct/t/a", equal) == names("s3a://lake/t/a", equal)


_SEGMENT = st.text(st.characters(exclude_characters="/#?", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.lists(_SEGMENT, min_size=1, max_size=5))
def test_however_a_key_is_encoded_it_folds_to_the_same(parts: list[str]) -> None:
    key = "/".join(parts)
    encoded = "//".join(quote(part, safe="") for part in parts)
    assert folded(encoded) == folded(key)
    assert END not in folded(key)
    assert folded(folded(key)) == folded(key) or "%" in key


@given(st.lists(_SEGMENT, min_size=1, max_size=4), _SEGMENT)
def test_a_place_never_contains_its_neighbours_with_longer_names(parts: list[str], more: str) -> None:
    key = "/".join(parts)
    eligible = Eligible(Root("lake", key), 0)
    assert not eligible.admits(ListedObject(f"{key}{more}/a", 1, "e", 0), 10)
    assert not eligible.admits(ListedObject(key, 1, "e", 0), 10)


def test_a_plan_waits_for_a_person_if_it_is_the_first_large_or_an_unlikely_share() -> None:
    limits, listed = ApprovalLimits(max_share=0.2, max_files=100), ListedAmount(1_000, 1_000)
    assert waits_for(ListedAmount(1, 1), listed, limits, is_first=True) == "first-run"
    assert waits_for(ListedAmount(1, 1), listed, ApprovalLimits(first_run_deletes=True), is_first=True) == ""
    assert waits_for(ListedAmount(100, 200), listed, limits, is_first=False) == ""
    assert waits_for(ListedAmount(100, 201), listed, limits, is_first=False) == "max-share"
    assert waits_for(ListedAmount(101, 1), listed, limits, is_first=False) == "max-files"
    assert share_of(ListedAmount(201, 0), listed) == 0.201
    assert share_of(ListedAmount(), ListedAmount()) == 0


@pytest.mark.parametrize("name", ["neighbours", "references", "places", "claims"])
def test_no_removal_starts_without_the_files_that_others_need(name: str) -> None:
    assert next(one for one in fields(OrphanContext) if one.name == name).default is MISSING


def test_a_needed_path_is_needed_in_each_batch_that_has_a_row_of_it() -> None:
    key = f"t/data/a{END}s3://lake"
    batches = [[(f"{key}{END}s3://lake/t/data/a{END}{etag}", 0, 1)] for etag in ("1", "2")]
    assert [(one.needed, one.left) for one in compared(batches, [[key]])] == [(1, []), (1, [])]
