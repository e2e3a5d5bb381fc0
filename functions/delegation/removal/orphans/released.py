"""Removes the tag from tagged files that are needed now, before a lifecycle rule deletes them.

`orphans/tagged/{place}at-{time}-{digest}.json` names a plan, before the first of its files is tagged. Every later
removal at that place, or at one above or below it, compares the files of these plans, of whatever table, with what is
needed. If a table has many plans, those are left out whose files are all in a newer plan, untagged or gone.
`{record}.done` states that.
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
"""The code of a finding: tagged files are needed now, and lost the tag."""
_FEW: Final = 20
"""This many plans are always compared, without a search for superfluous ones."""
_MOST_FILES: Final = 300_000
"""The maximum number of files of plans in one search, which are in memory."""
_MOST_LOOKS: Final = 1_000
"""The maximum number of files checked in the store for the search."""
_DONE: Final = ".done"
_DIGEST: Final = 20
_COMPONENT: Final = 10
_AT: Final = "at-"
"""No component starts like this, because components are hexadecimal."""
_BATCH: Final = 256
_AT_A_TIME: Final = 16


def remember_tagged(plans: PlanStore, index: OrphanIndex, segment: PlanSegment) -> None:
    """Record that files of a plan are about to be tagged."""
    digest = hashlib.sha256(segment.id.encode()).hexdigest()[:_DIGEST]
    key = f"{_places(index.roots[0])[-1]}{_AT}{index.listed_at:012d}-{digest}.json"
    record = {"format": 1, "plan": segment.id, "sha256": segment.sha256}
    plans.put(key, (json.dumps(record) + "\n").encode())


def release_needed(ctx: OrphanContext, index: OrphanIndex, keep: NeededAtLocation) -> tuple[Finding, ...]:
    """Remove the tag from files of earlier plans at the location of `index` that are or may be needed now. Returns a
    finding if there were any.

    Raises OperatorRoleRequired if no role may do so any more, PlanTampered for an unreadable record or plan, and the
    errors of the stores, because a needed file that keeps the tag is lost. By then all other files have lost the tag,
    unless a whole batch failed.
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
    """Yield the needed files of plans; of each plan separately if one of several is unreadable."""
    try:
        # The chunks of a plan expire shortly before its index.
        yield from keep.needed_among([(plan.plan_id, plan.chunks) for plan in plans]) if plans else ()
    except PlanTampered as error:
        if len(plans) == 1:
            failed.append(error)
            return
        for plan in plans:
            yield from _needed(keep, [plan], failed)


def superseded(ctx: OrphanContext, listing: OrphanIndex, index: OrphanIndex, eligible: Eligible) -> tuple[str, ...]:
    """Return the table's records here that become superfluous when that of the plan `index` is written. The plan is
    made from the listing, after needed files lost the tag; `eligible` decided what was listed."""
    here = index.roots[0]
    if len(tagged_at(ctx.plans, here)) <= _FEW:
        return ()
    # An unreadable record stays, and so does one with a file of unknown state in the store.
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
    """Record that these records are superfluous."""
    for key in records:
        plans.put(f"{key}{_DONE}", b"")


def tagged_at(plans: PlanStore, location: str, failed: list[DelegationError] | None = None) -> dict[str, PlanSegment]:
    """Return the plans by which files at a location may be tagged, by their records, oldest first. An unreadable record
    is added to `failed`."""
    failed = [] if failed is None else failed
    *above, here = _places(location)
    if next(iter(plans.keys((*above, here)[0])), None) is None:
        return {}
    keys = [*plans.keys(here), *(key for place in above for key in plans.keys(f"{place}{_AT}"))]
    return _recorded(plans, keys, failed)


def _tagged(ctx: OrphanContext, index: OrphanIndex, failed: list[DelegationError]) -> Iterator[tuple[str, OrphanIndex]]:
    """Yield the unexpired records at the location of an index with their plans. Adds failures to `failed`."""
    # The former place of a table's records.
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
                failed.append(PlanTampered(key, f"the record of a quarantine cannot be decoded ({error})"))
    return segments


def _released(ctx: OrphanContext, candidate: Candidate, here: str, failed: list[DelegationError]) -> bool:
    bucket = split(candidate.path)[0]
    try:
        return ctx.tags(bucket, here).untag(bucket, candidate.listed()) is TagFound.TAGGED
    except OperatorRoleRequired:
        what = f"removing the quarantine tag from {candidate.path}, which is needed now,"
        failed.append(OperatorRoleRequired(what, bucket))
    except DelegationError as error:
        failed.append(error)
    return False


def _is_tagged(ctx: OrphanContext, candidate: Candidate, here: str) -> bool:
    bucket = split(candidate.path)[0]
    return ctx.tags(bucket, here).untag(bucket, candidate.listed(), dry_run=True) is TagFound.TAGGED


def _places(location: str) -> list[str]:
    """Return the places of a location and of those above it, bucket first. A component may have any character."""
    root, places, place = Root.of(location), list[str](), "orphans/tagged/"
    for part in (root.bucket, *filter(None, root.prefix.split("/"))):
        place += f"{hashlib.sha256(part.encode()).hexdigest()[:_COMPONENT]}/"
        places.append(place)
    return places


def merged_released(findings: Sequence[Finding], more: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings, with those of later released files merged into one."""
    if not more:
        return tuple(findings)
    known = [*(finding for finding in findings if finding.code == RELEASED), *more]
    sample = [path for finding in known for path in finding.sample][:SAMPLE]
    merged = Finding(code=RELEASED, count=sum(finding.count for finding in known), sample=tuple(sample))
    return (*(finding for finding in findings if finding.code != RELEASED), merged)


def released_text(findings: Iterable[Finding]) -> str:
    """Return a summary's text about files that lost the tag."""
    files = sum(finding.count for finding in findings if finding.code == RELEASED)
    return f"; removed the tag from {counted(files, 'file')} that tables need again" if files else ""
