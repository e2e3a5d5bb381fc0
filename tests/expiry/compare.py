"""What the decision of an expiry is, and how it differs from Iceberg's."""

import collections
from collections.abc import Iterator
from typing import Any, Final

from delegation.iceberg.errors import CorruptMetadata
from delegation.removal.expiry.errors import InvalidRetention, SnapshotReferenced
from delegation.removal.expiry.retention import Decision, Retention, decide
from polaris_common.errors import DelegationError

Json = dict[str, Any]

_REFUSALS: Final[dict[str, type[DelegationError] | None]] = {
    "Cannot expire snapshots: GC is disabled": None,
    "For input string": InvalidRetention,
    "Number of snapshots to retain must be at least 1": InvalidRetention,
    "Cannot expire ": SnapshotReferenced,
    "Invalid table metadata: Cannot find current version": CorruptMetadata,
    "Tags do not support": CorruptMetadata,
    "Min snapshots to keep must be greater": CorruptMetadata,
    "Max snapshot age must be greater": CorruptMetadata,
    "Max reference age must be greater": CorruptMetadata,
}
"""How Iceberg's messages begin, and our errors. None: a guard refuses that (expiry/guards.py)."""


def decided(asked: Json) -> Decision | DelegationError:
    """Return the decision of a question, made as the phases make it: the snapshots, then the specs of the kept ones."""
    try:
        retention = Retention(
            older_than_ms=asked["older_than_ms"],
            retain_last=asked["retain_last"],
            snapshot_ids=tuple(asked["snapshot_ids"]),
            clean_expired_metadata=asked["clean"],
        )
        first = decide(asked["document"], retention, now_ms=asked["now"])
        in_use = {spec for one in first.counted for spec in asked["specs"].get(str(one), ())}
        if any(one.get("manifests") for one in asked["document"]["snapshots"] if one["snapshot-id"] in first.counted):
            in_use.add(0)
        return decide(asked["document"], retention, now_ms=asked["now"], specs_in_use=in_use)
    except DelegationError as error:
        return error


def compared(asked: Json, answer: Json, totals: "collections.Counter[str]") -> Iterator[str]:
    """Return the differences of an answer, and count what was asked."""
    ours = decided(asked)
    if not answer["ok"]:
        yield from _refused(asked, ours, answer, totals)
        return
    if isinstance(ours, DelegationError):
        yield f"Iceberg removes {answer}, we refuse: {ours.code} {ours}"
        return
    gone = ours.expired
    sets = {"snapshots": gone.snapshot_ids, "refs": gone.refs, "schemas": gone.schema_ids, "specs": gone.spec_ids}
    for name, found in sets.items():
        totals[f"{name} removed"] += len(found)
        if found != set(answer[name]):
            yield f"{name}: ours {sorted(map(str, found))}, Iceberg's {sorted(map(str, answer[name]))}"
    totals["snapshots kept"] += len(ours.kept)
    for kept in ours.kept.values():
        totals[f"kept: {kept.why}"] += 1
    if ours.kept.keys() | gone.snapshot_ids != {one["snapshot-id"] for one in asked["document"].get("snapshots", [])}:
        yield "a snapshot is neither kept nor removed"


def _refused(
    asked: Json, ours: Decision | DelegationError, answer: Json, totals: "collections.Counter[str]"
) -> Iterator[str]:
    """Compare a refusal of Iceberg; two are its own faults, where ours decides (expiry/retention.py)."""
    message = answer["message"] or ""
    if answer["type"] == "NullPointerException" or message.startswith("arraySize cannot be negative"):
        totals[f"Iceberg fails: {answer['type']}"] += 1
        if isinstance(ours, DelegationError) and not isinstance(ours, CorruptMetadata):
            yield f"Iceberg fails with {answer['type']}, we refuse: {ours.code} {ours}"
        elif isinstance(ours, Decision) and ours.expired.schema_ids and answer["type"] == "NullPointerException":
            yield "Iceberg does not know the schema of a kept snapshot, and we remove schemas"
        return
    begin = next((begin for begin in _REFUSALS if message.startswith(begin)), "")
    totals[f"refused: {begin or answer['type']}"] += 1
    if not begin:
        yield f"Iceberg refuses: {answer['type']} {message}"
    elif asked["retain_last"] is not None and asked["retain_last"] < 1:
        # A request that nothing accepts is refused before the metadata is read, whose fault Iceberg names first.
        if not isinstance(ours, InvalidRetention):
            yield f"Iceberg refuses: {message}, we {ours}"
    elif (expected := _REFUSALS[begin]) is not None and not isinstance(ours, expected):
        yield f"Iceberg refuses: {message}, we {ours}"
