"""Which snapshots and refs an expiry removes; tests/expiry compares the rule with Iceberg itself."""

from typing import Any

import pytest

from delegation.iceberg.errors import CorruptMetadata
from delegation.removal.expiry.errors import InvalidRetention, SnapshotReferenced
from delegation.removal.expiry.retention import Expired, KeptSnapshot, Retention, decide, expired, unknown_ids
from delegation.removal.expiry.snapshots import TableHistory

NOW = 1_000_000_000_000
DAY = 24 * 60 * 60 * 1000


def metadata(*ages: float, **more: Any) -> dict[str, Any]:
    """Return metadata whose snapshots 1, 2, … have these ages in days, each the parent of the next."""
    snapshots = [
        {"snapshot-id": at + 1, "timestamp-ms": int(NOW - age * DAY), "schema-id": 0, "manifest-list": f"s3://b/{at}"}
        | ({"parent-snapshot-id": at} if at else {})
        for at, age in enumerate(ages)
    ]
    refs = {"main": {"snapshot-id": len(ages), "type": "branch"}} if ages else {}
    return {
        "current-snapshot-id": len(ages) or -1,
        "snapshots": snapshots,
        "refs": refs | more.pop("refs", {}),
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0}],
        **more,
    }


def removed(document: dict[str, Any], **retention: Any) -> set[int]:
    return set(expired(document, Retention(**retention), now_ms=NOW).snapshot_ids)


def tag(snapshot_id: int, **retention: int) -> dict[str, Any]:
    return {"snapshot-id": snapshot_id, "type": "tag", **retention}


def branch(snapshot_id: int, **retention: int) -> dict[str, Any]:
    return {"snapshot-id": snapshot_id, "type": "branch", **retention}


def test_snapshots_older_than_five_days_go_and_one_is_kept_by_default() -> None:
    assert removed(metadata(9, 8, 4, 1)) == {1, 2}
    assert removed(metadata(9, 8, 7)) == {1, 2}


def test_a_snapshot_exactly_at_the_limit_is_kept() -> None:
    assert removed(metadata(6, 5, 1)) == {1}


def test_the_request_overrides_the_properties_and_the_branch_overrides_both() -> None:
    kept = {"history.expire.max-snapshot-age-ms": str(20 * DAY), "history.expire.min-snapshots-to-keep": "3"}
    document = metadata(30, 29, 28, properties=kept)
    assert removed(document) == set()
    assert removed(document, retain_last=1) == {1, 2}
    document["refs"]["main"]["min-snapshots-to-keep"] = 2
    assert removed(document, retain_last=3) == {1}
    document["refs"]["main"]["max-snapshot-age-ms"] = 29 * DAY
    assert removed(document, older_than_ms=NOW) == {1}


@pytest.mark.parametrize("heads", [(8, 9), (9, 8)])
def test_branches_that_part_keep_what_either_of_them_keeps(heads: tuple[int, int]) -> None:
    """Whichever is read first: their common past is that of the one which keeps more."""
    document = metadata(20, 19, 18, 17, 16)
    for one, parent in ((6, 5), (7, 5), (8, 6), (9, 7)):
        document["snapshots"].append({"snapshot-id": one, "parent-snapshot-id": parent, "timestamp-ms": NOW - DAY})
    document["current-snapshot-id"] = -1
    much, little = heads
    document["refs"] = {
        "much": branch(much, **{"min-snapshots-to-keep": 5}),
        "little": branch(little, **{"min-snapshots-to-keep": 3}),
    }
    assert removed(document) == {1, 2}
    document["refs"] = {
        "much": branch(much, **{"max-snapshot-age-ms": 18 * DAY}),
        "little": branch(little, **{"max-snapshot-age-ms": 16 * DAY}),
    }
    assert removed(document) == {1, 2}


def test_a_negative_age_of_refs_removes_refs_to_snapshots_of_the_future_unless_the_operator_bounds_it() -> None:
    """Iceberg compares ages as they are; found by `make expiry-fuzz`, seed 406."""
    document = metadata(9, -1, refs={"t": tag(2), "u": tag(1)})
    document["properties"] = {"history.expire.max-ref-age-ms": str(-(2**63))}
    assert expired(document, Retention(), now_ms=NOW).refs == {"t", "u"}
    assert expired(document, Retention(least_ref_age_ms=1), now_ms=NOW).refs == {"u"}


def test_a_named_snapshot_goes_unless_a_ref_is_at_it() -> None:
    document = metadata(3, 2, 1, refs={"audit": tag(1)})
    assert removed(document, snapshot_ids=(2,)) == {2}
    with pytest.raises(SnapshotReferenced, match="audit"):
        removed(document, snapshot_ids=(1,))
    document["refs"]["audit"]["max-ref-age-ms"] = DAY
    assert removed(document, snapshot_ids=(1,)) == {1}
    with pytest.raises(SnapshotReferenced, match="main"):
        removed(document, snapshot_ids=(3,))


def test_an_id_that_is_gone_is_ignored_and_is_reported() -> None:
    document = metadata(3, 2, 1)
    assert removed(document, snapshot_ids=(7, 8, 9, 10)) == set()
    assert unknown_ids(document, Retention(snapshot_ids=(7, 2))) == {7}


def test_every_kept_snapshot_has_a_reason() -> None:
    document = metadata(20, 19, 18, 3, 1, refs={"audit": tag(1)})
    document["snapshots"].append({"snapshot-id": 9, "timestamp-ms": NOW})
    decision = decide(document, Retention(retain_last=1), now_ms=NOW)
    assert decision.kept == {
        1: KeptSnapshot("ref", "audit"),
        4: KeptSnapshot("age", "main"),
        5: KeptSnapshot("ref", "main"),
        9: KeptSnapshot("unreferenced"),
    }
    assert decide(document, Retention(retain_last=3), now_ms=NOW).kept[3] == KeptSnapshot("count", "main")


def test_unused_schemas_and_specs_go_only_when_asked() -> None:
    document = metadata(9, 8, 1)
    document["schemas"] = [{"schema-id": one} for one in range(4)]
    document["partition-specs"] = [{"spec-id": one} for one in range(4)]
    document["snapshots"][2]["schema-id"] = 2
    assert not expired(document, Retention(), now_ms=NOW, specs_in_use={1}).schema_ids
    clean = Retention(clean_expired_metadata=True)
    gone = expired(document, clean, now_ms=NOW, specs_in_use={1})
    assert (set(gone.schema_ids), set(gone.spec_ids)) == ({1, 3}, {2, 3})
    assert expired(document, clean, now_ms=NOW).spec_ids == set()
    del document["snapshots"][2]["schema-id"]
    assert expired(document, clean, now_ms=NOW).schema_ids == set()


def test_a_snapshot_that_only_its_naming_removes_still_counts_for_specs_and_schemas() -> None:
    document = metadata(3, 2, 1)
    document["schemas"].append({"schema-id": 1})
    document["snapshots"][1]["schema-id"] = 1
    decision = decide(document, Retention(snapshot_ids=(2,), clean_expired_metadata=True), now_ms=NOW)
    assert decision.expired == Expired(frozenset({2}))
    assert decision.counted == {1, 2, 3}


@pytest.mark.parametrize("value", ["", "x", "1.5", "9" * 5_000, " 1", "1_000"])
def test_a_property_that_is_no_number_is_named(value: str) -> None:
    for name in ("max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms"):
        document = metadata(9, 1, properties={f"history.expire.{name}": value})
        with pytest.raises(InvalidRetention, match=f"history.expire.{name}"):
            removed(document, older_than_ms=NOW, retain_last=1)


@pytest.mark.parametrize("option", [{"retain_last": 0}, {"retain_last": 2**31}, {"max_ref_age_ms": 0}])
def test_an_option_that_iceberg_refuses_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidRetention):
        Retention(**option)


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        ({"refs": {"main": branch(9)}}, "refs"),
        ({"refs": {"main": branch(1)}}, "refs"),
        ({"refs": {"x": tag(1)}}, "refs"),
        ({"refs": {"main": tag(2), "x": {"snapshot-id": 1, "type": "other"}}}, "refs"),
        ({"refs": {"main": branch(2), "x": tag(1, **{"min-snapshots-to-keep": 1})}}, "refs"),
        ({"refs": {"main": branch(2, **{"min-snapshots-to-keep": 0})}}, "refs"),
        ({"current-snapshot-id": 7}, "current-snapshot-id"),
        ({"current-snapshot-id": 1}, "refs"),
        ({"snapshots": "none"}, "snapshots"),
        ({"snapshots": [{"snapshot-id": 2, "timestamp-ms": 1}] * 2}, "snapshots"),
        ({"snapshots": [{"snapshot-id": 2, "timestamp-ms": 1, "parent-snapshot-id": 2}]}, "parent-snapshot-id"),
        ({"snapshots": [{"snapshot-id": 2}]}, "timestamp-ms"),
        ({"snapshots": [{"snapshot-id": True, "timestamp-ms": 1}]}, "snapshot-id"),
    ],
)
def test_metadata_that_contradicts_itself_is_refused(damage: dict[str, Any], field: str) -> None:
    document = metadata(9, 8) | damage
    with pytest.raises(CorruptMetadata) as refused:
        removed(document, older_than_ms=NOW)
    assert refused.value.field == field


def test_thousands_of_branches_at_one_long_history_take_linear_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 5_000
    document = metadata(*(count - at for at in range(count)))
    document["refs"] |= {
        f"b{at}": branch(count, **{"min-snapshots-to-keep": at + 1, "max-snapshot-age-ms": (at + 1) * DAY})
        for at in range(count)
    }
    steps, parent_of = 0, TableHistory.parent_of

    def counted(table: TableHistory, snapshot_id: int) -> int | None:
        nonlocal steps
        steps += 1
        return parent_of(table, snapshot_id)

    monkeypatch.setattr(TableHistory, "parent_of", counted)
    assert removed(document) == set()
    assert count <= steps <= 5 * count
