"""What this service calls an orphan file and deletes, and how it differs from Iceberg's action."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from delegation.removal.orphans.errors import LocationShared, PrefixMismatch
from polaris_common.errors import DelegationError
from tests.actions.lake import SparkLake, where
from tests.actions.records import Json, Totals
from tests.fixtures import corpus
from tests.fixtures.corpus import plain
from tests.orphans.plants import UNLISTED
from tests.orphans.questions import SweepQuestion
from tests.orphans.sweep import planted_lake, sweep

RECORDED: Final = Path(__file__).with_name("recorded.jsonl.xz")
"""The action's answers, by `make orphans-oracle ARGS=--record`."""


def compared(question: SweepQuestion, answer: Json, totals: Totals) -> Iterator[str]:
    """Yield what differs without a reason, and count what is the same and what differs for one.

    Reasons are the stated rules of docs/orphans.md: the location overlaps another table's; a file stays that another
    table needs, that only the table's history names (entries with status DELETED, the logs of former metadata files),
    whose key is another spelling of a needed one, whose key has `#` or `?`, that is a directory marker, that a table
    needs that no catalog lists: one of the scenario that was dropped without its files, or one that was planted.
    """
    before, lake = planted_lake(question, answer["now_ms"]), planted_lake(question, answer["now_ms"])
    needed = _needed(question)
    found = set(answer["found"])
    # What Iceberg calls an orphan and what it deletes differ where it reads `#` and `?` as the end of a path.
    theirs = (found | set(answer["deleted"])) & needed
    others = sum(question.table not in _who_needs(question, uri) for uri in theirs if where(uri) in before.objects)
    totals["Iceberg deletes what another table needs: files"] += others
    try:
        deleted = sweep(lake, question)
    except (LocationShared, PrefixMismatch) as refused:
        yield from _refused(question, answer, refused, totals)
        deleted = set()
    except DelegationError as refused:
        yield f"we refuse it: {refused.code} {refused}; Iceberg: {answer['error']}"
        return
    else:
        totals["tables swept by both" if answer["error"] is None else "Iceberg fails"] += 1
        if answer["error"] is None:
            yield from _files(question, needed, deleted, found, totals)
        yield from _planted(question, deleted, found, totals)
    for uri in sorted(deleted & needed):
        yield f"we delete {uri}, which a table needs"
    yield from _read_the_same(before, lake, totals)


def _refused(question: SweepQuestion, answer: Json, refused: DelegationError, totals: Totals) -> Iterator[str]:
    if isinstance(refused, PrefixMismatch):
        totals["refused by both: PREFIX_MISMATCH"] += 1
        if "conflict" not in (answer["error"] or ""):
            yield f"we refuse it: {refused}; Iceberg: {answer['error']}"
        return
    totals[f"refused by us: {refused.code}"] += 1
    if not _overlapping(question):
        yield f"we refuse it: {refused}, and no other table is there"


def _files(
    question: SweepQuestion, needed: set[str], deleted: set[str], found: set[str], totals: Totals
) -> Iterator[str]:
    spelled = {_spelling(uri) for uri in needed}
    dropped = set().union(*(one.reached() for one in corpus.load(question.scenario).tables if not one.live))
    unlisted = {one.uri for one in question.planted if one.stays == UNLISTED}
    totals["orphans of both"] += len(deleted & found)
    for uri in sorted(deleted - found - needed):
        yield f"we delete {uri}, which is no orphan by Iceberg"
    for uri in sorted(found - deleted):
        if uri in needed:
            own = question.table in _who_needs(question, uri)
            totals[f"less: {'named by the history of the table' if own else 'needed by another table'}"] += 1
        elif "#" in uri or "?" in uri:
            totals["less: # or ? in the key"] += 1
        elif uri.endswith("/"):
            totals["less: directory markers"] += 1
        elif uri in unlisted:
            totals[f"less: {UNLISTED}"] += 1
        elif uri in dropped:
            totals["less: needed by a table that was dropped without its files"] += 1
        elif _spelling(uri) in spelled:
            totals["less: spelling of a needed file"] += 1
        else:
            yield f"{uri} is an orphan by Iceberg, and we leave it"


def _planted(question: SweepQuestion, deleted: set[str], found: set[str], totals: Totals) -> Iterator[str]:
    for one in question.planted:
        totals["planted"] += 1
        if one.uri in deleted and one.stays:
            yield f"we delete {one.uri} ({one.kind}), which stays: {one.stays}"
        elif one.uri not in deleted and not one.stays:
            yield f"we leave {one.uri} ({one.kind})"
        elif one.stays:
            totals[f"stays in both: {one.stays}"] += one.uri not in found


def _read_the_same(before: SparkLake, lake: SparkLake, totals: Totals) -> Iterator[str]:
    """Compare what every snapshot of every live table reads, as fastavro says."""
    for name in before.pointers:
        document = before.metadata(name)
        ids = {one["snapshot-id"] for one in document.get("snapshots") or ()}
        totals["snapshots read"] += len(ids)
        paths = before.needed(document, ids) if ids else set()
        log = {plain(one["metadata-file"]) for one in document.get("metadata-log") or ()}
        for uri in sorted(paths | log | {plain(before.pointers[name])}):
            if before.objects.get(where(uri)) != lake.objects.get(where(uri)):
                yield f"{name} does not read {uri} as before"


def _needed(question: SweepQuestion) -> set[str]:
    live = [one for one in corpus.load(question.scenario).tables if one.live]
    return {plain(question.begins_with)}.union(*(one.reached() for one in live))


def _who_needs(question: SweepQuestion, uri: str) -> set[str]:
    return {one.name for one in corpus.load(question.scenario).tables if one.live and uri in one.reached()}


def _overlapping(question: SweepQuestion) -> bool:
    lake = planted_lake(question, 0)
    at = {name: f"{plain(lake.metadata(name)['location']).rstrip('/')}/" for name in lake.pointers}
    here = at.pop(question.table)
    return any(one.startswith(here) or here.startswith(one) for one in at.values())


def _spelling(uri: str) -> str:
    decoded = uri
    while (once := unquote(decoded)) != decoded:
        decoded = once
    decoded = re.sub(r"/(\./)+", "/", re.sub("/+", "/", decoded))
    return unicodedata.normalize("NFC", decoded)
