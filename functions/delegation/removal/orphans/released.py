"""Taking the tag from files that were tagged before and are needed now, before a lifecycle rule deletes them.

`orphans/tagged/{place}at-{time}-{digest}.json` names a plan, before the first of its files is tagged. Every later look
at that place, or at one above or below it, compares the files of these plans with what is needed, of whatever table
they were. Of many plans of a table those are left out that have nothing more to state: each of their files is in a
newer plan, has no tag any more, or is gone. `{record}.done` states that.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from typing import Final

from delegation.items import each_item
from delegation.removal.attempt import PlanSegment
from delegation.removal.errors import PlanLost, PlanTampered
from delegation.removal.index import SAMPLE, Finding
from delegation.removal.orphans.context import OrphanContext
from delegation.removal.orphans.errors import OperatorRoleRequired
from delegation.removal.orphans.index import Candidate, OrphanIndex, candidates_of, load_plan
from delegation.removal.orphans.needed_files import NeededAtLocation
from delegation.removal.orphans.place import Eligible
from delegation.storage.base import ObjectNotFound, ObjectStoreError, PlanStore
from delegation.storage.listing.model import TagFound
from delegation.storage.locations import Root, split
from polaris_common.errors import DelegationError, counted

RELEASED: Final = "QUARANTINE_RELEASED"
"""The code of a finding: files that were tagged before are needed now, and lost the tag."""
_FEW: Final = 20
"""So many plans are compared at each look, without a search for those that may be left out."""
_MOST_FILES: Final = 300_000
"""Files of plans that are searched at once: they are in memory."""
_MOST_LOOKS: Final = 1_000
"""Files that are looked at in the store for it."""
_DONE: Final = ".done"
_DIGEST: Final = 20
_COMPONENT: Final = 10
_AT: Final = "at-"
"""No component begins so: they are hexadecimal."""
_BATCH: Final = 256
_AT_A_TIME: Final = 16


def remember_tagged(plans: PlanStore, index: OrphanIndex, segment: PlanSegment) -> None:
    """Record that files of a plan are about to be tagged."""
    digest = hashlib.sha256(segment.id.encode()).hexdigest()[:_DIGEST]
    key = f"{_places(index.roots[0])[-1]}{_AT}{index.listed_at:012d}-{digest}.json"
    record = {"format": 1, "plan": segment.id, "sha256": segment.sha256}
    plans.put(key, (json.dumps(record) + "\n").encode())


def release_needed(ctx: OrphanContext, index: OrphanIndex, keep: NeededAtLocation) -> tuple[Finding, ...]:
    """Take the tag from files of earlier plans that are needed now, or may be; return a finding if there were any.

    The files are at the location that `index` is of.

    Raises OperatorRoleRequired if no role may do it any more, PlanTampered for a record or plan that cannot be read,
    and the errors of the stores: a file that keeps the tag is lost. All other files have lost the tag by then, unless
    every one of a batch failed.
    """
    here, failed = index.roots[0], list[DelegationError]()
    plans = [plan for _, plan in _tagged(ctx, index, failed)]
    count, sample = 0, list[str]()
    files = (candidate for candidate in _needed(keep, plans, failed) if candidate.path.startswith(here))
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="untag") as pool:
        while batch := list(dict.fromkeys(islice(files, _BATCH))):
            ctx.attempt.checkpoint()
            before = len(failed)
            tagged = pool.map(lambda candidate: _released(ctx, candidate, here, failed), batch)
            paths = [candidate.path for candidate, was_tagged in zip(batch, tagged, strict=True) if was_tagged]
            count += len(paths)
            sample = [*sample, *paths][:SAMPLE]
            if len(failed) - before == len(batch):
                break  # the store or the role, not a file
    if failed:
        raise failed[0]
    return (Finding(code=RELEASED, count=count, sample=tuple(sample)),) if count else ()


def _needed(keep: NeededAtLocation, plans: Sequence[OrphanIndex], failed: list[DelegationError]) -> Iterator[Candidate]:
    """Yield the files of plans that are needed, those of each plan apart if one of several cannot be read."""
    try:
        # The chunks of a plan expire some moments before its index.
        yield from keep.needed_among([(plan.plan_id, plan.chunks) for plan in plans]) if plans else ()
    except PlanTampered as error:
        if len(plans) == 1:
            failed.append(error)
            return
        for plan in plans:
            yield from _needed(keep, [plan], failed)


def superseded(ctx: OrphanContext, listing: OrphanIndex, index: OrphanIndex, eligible: Eligible) -> tuple[str, ...]:
    """Return which records of the table here have nothing more to state once that of the plan `index` is written.

    The plan is made of the listing, after what is needed lost the tag; `eligible` is what was listed.
    """
    here = index.roots[0]
    if len(tagged_at(ctx.plans, here)) <= _FEW:
        return ()
    # A record that cannot be read stays, and so does one with a file of which the store states nothing.
    plans = [
        entry
        for entry in _tagged(ctx, index, [])
        if (entry[1].table_uuid, entry[1].roots) == (index.table_uuid, (here,))
    ]
    files: dict[str, set[Candidate]] = {}
    for key, plan in plans:
        if plan.files_planned + sum(map(len, files.values())) <= _MOST_FILES:
            with suppress(PlanTampered, ObjectStoreError):
                files[key] = set(chain.from_iterable(candidates_of(ctx.plans, [(plan.plan_id, plan.chunks)])))
    left, listed = set[Candidate]().union(*files.values()), set[Candidate]()
    for some in candidates_of(ctx.plans, [(index.plan_id, index.chunks)]) if left else ():
        left.difference_update(some)
    for some in candidates_of(ctx.plans, [(part.plan_id, part.chunks) for part in listing.parts]) if left else ():
        listed |= left.intersection(some)
    foreign = ctx.settings.delete.foreign
    unsure = {
        candidate
        for candidate in left
        if candidate in listed
        or foreign.contain(candidate.path)
        or not eligible.admits(candidate.listed(), listing.listed_at)
    }
    tagged = unsure
    if len(unsure) <= _MOST_LOOKS:
        looks = each_item(
            unsure,
            lambda candidate: _is_tagged(ctx, candidate, here),
            name="orphans.superseded",
            shown=lambda candidate: candidate.path,
        )
        tagged = unsure - {look.item for look in looks if look.result is False}
    return tuple(key for key, some in files.items() if tagged.isdisjoint(some))


def leave_out(plans: PlanStore, records: Iterable[str]) -> None:
    """Note that these records have nothing more to state."""
    for key in records:
        plans.put(f"{key}{_DONE}", b"")


def tagged_at(plans: PlanStore, location: str, failed: list[DelegationError] | None = None) -> dict[str, PlanSegment]:
    """Return the plans by which files at a location may be tagged, by their records, the oldest first.

    A record that cannot be read is added to `failed`.
    """
    failed = [] if failed is None else failed
    *above, here = _places(location)
    if next(iter(plans.keys((*above, here)[0])), None) is None:
        return {}
    keys = [*plans.keys(here), *(key for place in above for key in plans.keys(f"{place}{_AT}"))]
    return _recorded(plans, keys, failed)


def _tagged(ctx: OrphanContext, index: OrphanIndex, failed: list[DelegationError]) -> Iterator[tuple[str, OrphanIndex]]:
    """Yield the records at the location of an index with their plans, without those that expired; add what failed."""
    # Where a record of a table was at first.
    former = _recorded(ctx.plans, list(ctx.plans.keys(f"orphans/{index.table_uuid.lower()}/tagged/")), failed)
    for key, segment in (tagged_at(ctx.plans, index.roots[0], failed) | former).items():
        try:
            plan = load_plan(ctx.plans, segment)
        except PlanLost:
            continue
        except PlanTampered as error:
            failed.append(error)
            continue
        yield key, plan


def _recorded(plans: PlanStore, keys: Sequence[str], failed: list[DelegationError]) -> dict[str, PlanSegment]:
    done = {key.removesuffix(_DONE) for key in keys if key.endswith(_DONE)}
    segments: dict[str, PlanSegment] = {}
    for key in sorted(keys, key=lambda path: path.rpartition("/")[2]):
        if key not in done and not key.endswith(_DONE):
            try:
                record = json.loads(plans.get(key))
                segments[key] = PlanSegment(record["plan"], record["sha256"])
            except ObjectNotFound:
                continue  # it expired since the listing
            except (ValueError, KeyError, TypeError) as error:
                failed.append(PlanTampered(key, f"the record of a quarantine does not decode ({error})"))
    return segments


def _released(ctx: OrphanContext, candidate: Candidate, here: str, failed: list[DelegationError]) -> bool:
    bucket = split(candidate.path)[0]
    try:
        return ctx.tags(bucket, here).untag(bucket, candidate.listed()) is TagFound.TAGGED
    except OperatorRoleRequired:
        what = f"to remove the quarantine tag from {candidate.path}, which is needed now,"
        failed.append(OperatorRoleRequired(what, bucket))
    except DelegationError as error:
        failed.append(error)
    return False


def _is_tagged(ctx: OrphanContext, candidate: Candidate, here: str) -> bool:
    bucket = split(candidate.path)[0]
    return ctx.tags(bucket, here).untag(bucket, candidate.listed(), dry_run=True) is TagFound.TAGGED


def _places(location: str) -> list[str]:
    """Return the places of a location and of those above it, its bucket first: a component may have any character."""
    root, places, place = Root.of(location), list[str](), "orphans/tagged/"
    for part in (root.bucket, *filter(None, root.prefix.split("/"))):
        place += f"{hashlib.sha256(part.encode()).hexdigest()[:_COMPONENT]}/"
        places.append(place)
    return places


def merged_released(findings: Sequence[Finding], more: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings with those of files that were released later as one."""
    if not more:
        return tuple(findings)
    known = [*(finding for finding in findings if finding.code == RELEASED), *more]
    sample = [path for finding in known for path in finding.sample][:SAMPLE]
    merged = Finding(code=RELEASED, count=sum(finding.count for finding in known), sample=tuple(sample))
    return (*(finding for finding in findings if finding.code != RELEASED), merged)


def released_text(findings: Iterable[Finding]) -> str:
    """Return what a summary states about files that lost the tag."""
    files = sum(finding.count for finding in findings if finding.code == RELEASED)
    return f"; removed the tag from {counted(files, 'file')} that tables need again" if files else ""
