"""What this service removes and deletes, and how it differs from Iceberg's action."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delegation.removal.expiry.errors import SnapshotReferenced
from polaris_common.errors import DelegationError
from tests.actions.lake import SparkLake, where
from tests.actions.records import Json, Totals
from tests.expiry.action.iceberg import state
from tests.expiry.action.lake import Expiry, expire
from tests.expiry.action.questions import Question

RECORDED: Final = Path(__file__).with_name("recorded.jsonl.xz")
"""The action's answers, by `make expiry-oracle ARGS=--record`."""


def compared(question: Question, answer: Json, totals: Totals) -> Iterator[str]:
    """Yield what differs without a reason, and count what is the same and what differs for one.

    Reasons: files that are kept and listed (outside the table's locations, of other tables); files that a retained
    snapshot names by another scheme, which the action deletes; and on our side files that only entries with status
    DELETED of expired manifests name, and metadata files beyond those that the table keeps.
    """
    lake = SparkLake(question.scenario, answer["now_ms"])
    if question.is_altered:
        lake.objects[where(question.begins_with)] = question.content()
        lake.pointers[question.table] = question.begins_with
    before = SparkLake(question.scenario, answer["now_ms"])
    try:
        ours = expire(lake, question.table, question.options.retention())
    except DelegationError as refused:
        if answer["error"] is None or not isinstance(refused, SnapshotReferenced):
            yield f"we refuse it: {refused.code} {refused}; Iceberg: {answer['error']}"
        totals["refused by both"] += 1
        return
    if answer["error"] is not None and any(one.get("manifests") for one in question.document["snapshots"]):
        totals["Iceberg fails: manifests listed inline"] += 1
        return
    if answer["error"] is not None:
        yield f"Iceberg refuses it: {answer['error']}; we remove {len(ours.result.snapshot_ids)} snapshots"
        return
    left = state(lake.metadata(question.table))
    for name, found in left.items():
        if found != answer[name]:
            yield f"{name}: we leave {found}, Iceberg leaves {answer[name]}"
    totals["snapshots expired"] += len(question.document["snapshots"]) - len(left["snapshots"])
    totals["refs expired"] += len(question.document.get("refs") or ()) - len(left["refs"])
    yield from _files(question.document, set(left["snapshots"]), before, ours, set(answer["deleted"]), totals)


def _files(
    document: Json, retained: set[int], before: SparkLake, ours: Expiry, theirs: set[str], totals: Totals
) -> Iterator[str]:
    """Compare the objects deleted, by what the lake had before."""
    needed = before.needed(document, retained)
    dead = before.only(document, retained) - before.only(document, retained, live=True)
    totals["files deleted by both"] += len(ours.deleted & theirs)
    for uri in sorted(ours.deleted & needed):
        yield f"we delete {uri}, which a retained snapshot needs"
    for uri in sorted(ours.deleted - theirs - needed):
        if ".metadata.json" in uri:
            totals["more: old metadata files"] += 1
        elif uri in dead:
            totals["more: named by entries DELETED alone"] += 1
        else:
            yield f"we delete {uri}, Iceberg does not"
    for uri in sorted(theirs - ours.deleted):
        if uri in ours.kept:
            totals["less: kept and listed"] += 1
        elif uri in needed:
            totals["less: a retained snapshot names it by another scheme"] += 1
        else:
            yield f"Iceberg deletes {uri}, we do not"
