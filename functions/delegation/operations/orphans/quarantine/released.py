"""Taking the tag from files that were tagged before and are needed now, before a lifecycle rule deletes them.

`orphans/{table}/tagged/{time}-{digest}.json` names a plan, before the first of its files is tagged. Every later look at
the table compares the files of the newest of these plans with what is needed. A file that stays an orphan is in each
newer plan again, so that older plans have nothing more to state.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from delegation.errors import counted
from delegation.operations.orphans.context import OrphanContext
from delegation.operations.orphans.errors import OperatorRoleRequired
from delegation.operations.orphans.index import Candidate, OrphanIndex, load_plan
from delegation.operations.orphans.planning.keep import KeepSet
from delegation.storage.listing.tags import TagFound
from delegation.storage.locations import split
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.errors import PlanLost
from delegation.worksets.index import SAMPLE, Finding

RELEASED: Final = "QUARANTINE_RELEASED"
"""The code of a finding: files that were tagged before are needed now, and lost the tag."""
_PLANS: Final = 20
"""The newest plans whose files are compared."""
_DIGEST: Final = 20
_BATCH: Final = 256
_AT_A_TIME: Final = 16


def remember_tagged(ctx: OrphanContext, index: OrphanIndex, segment: PlanSegment) -> None:
    """Record that files of a plan are about to be tagged."""
    digest = hashlib.sha256(segment.id.encode()).hexdigest()[:_DIGEST]
    key = f"{_place(index.table_uuid)}{index.listed_at:012d}-{digest}.json"
    record = {"format": 1, "plan": segment.id, "sha256": segment.sha256}
    ctx.plans.put(key, (json.dumps(record) + "\n").encode())


def release_needed(ctx: OrphanContext, table_uuid: str, keep: KeepSet) -> tuple[Finding, ...]:
    """Take the tag from files of earlier plans that are needed now, or may be; return a finding if there were any.

    Raises OperatorRoleRequired if no role may do it any more, and the errors of the stores: a file that keeps the tag
    is lost.
    """
    plans = list(_tagged_plans(ctx, table_uuid))
    if not plans:
        return ()
    found, sample = 0, list[str]()
    # The chunks of a plan expire some moments before its index.
    needed = keep.needed_among([(index.plan_id, index.chunks) for index in plans])
    locations = sorted({index.roots[0] for index in plans}, key=len, reverse=True)
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="untag") as pool:
        while batch := list(islice(needed, _BATCH)):
            ctx.attempt.checkpoint()
            tagged = pool.map(lambda one: _released(ctx, one, locations), batch)
            paths = [one.path for one, was_tagged in zip(batch, tagged, strict=True) if was_tagged]
            found += len(paths)
            sample = [*sample, *paths][:SAMPLE]
    return (Finding(code=RELEASED, count=found, sample=tuple(sample)),) if found else ()


def _tagged_plans(ctx: OrphanContext, table_uuid: str) -> Iterator[OrphanIndex]:
    """Yield the newest plans of which files were tagged; those that expired have been followed by newer ones."""
    for key in sorted(ctx.plans.keys(_place(table_uuid)), reverse=True)[:_PLANS]:
        try:
            record = json.loads(ctx.plans.get(key))
            yield load_plan(ctx.plans, PlanSegment(record["plan"], record["sha256"]))
        except PlanLost:
            continue


def _released(ctx: OrphanContext, one: Candidate, locations: Iterable[str]) -> bool:
    bucket = split(one.path)[0]
    location = next(place for place in locations if one.path.startswith(place))
    try:
        store = ctx.tags(bucket, location)
    except OperatorRoleRequired as error:
        what = f"to take the tag of a quarantine from {one.path}, which is needed now,"
        raise OperatorRoleRequired(what, bucket) from error
    return store.untag(bucket, one.listed()) is TagFound.TAGGED


def _place(table_uuid: str) -> str:
    return f"orphans/{table_uuid.lower()}/tagged/"


def merged_released(findings: Sequence[Finding], more: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings with those of files that were released later as one."""
    if not more:
        return tuple(findings)
    known = [*(one for one in findings if one.code == RELEASED), *more]
    sample = [path for one in known for path in one.sample][:SAMPLE]
    merged = Finding(code=RELEASED, count=sum(one.count for one in known), sample=tuple(sample))
    return (*(one for one in findings if one.code != RELEASED), merged)


def released_text(findings: Iterable[Finding]) -> str:
    """Return what a summary states about files that lost the tag."""
    files = sum(one.count for one in findings if one.code == RELEASED)
    return f"; took the tag from {counted(files, 'file')} that tables need again" if files else ""
