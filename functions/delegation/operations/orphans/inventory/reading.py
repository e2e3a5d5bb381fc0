"""Reading an S3 Inventory report instead of listing a location: file by file, resumable, with flat memory.

`{task}/listed/{digest of submission, manifest and file}.json` states which chunks have what a file of the report has at
the location. An attempt after a crash reads the files that lack one. A file is recorded after its last byte, when its
size and MD5 are known to be those of the manifest; what was stored of one that is not is never named. At the end all
candidates are sorted once, because no report is, and a key that it has twice is left out.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from pydantic import ValidationError

from delegation.operations.orphans.approval import ListedAmount
from delegation.operations.orphans.context import OrphanContext
from delegation.operations.orphans.eligible import Eligible
from delegation.operations.orphans.index import Candidate, CandidateWriter, ListedPart, candidates_of
from delegation.operations.orphans.inventory.errors import inventory_damaged, inventory_refused
from delegation.operations.orphans.inventory.manifest import (
    CHECKSUM,
    LAG,
    MANIFEST_BYTES,
    InventoryReport,
    ReportFile,
    manifest_of,
    parse_manifest,
)
from delegation.operations.orphans.inventory.rows import RowReader, checked, lines_of
from delegation.operations.orphans.inventory.witnesses import LocationLook, look_at
from delegation.operations.orphans.planning.parts import signs_among
from delegation.operations.orphans.planning.walk import LocationListing
from delegation.operations.orphans.spelling import END
from delegation.storage.base import FileTooLarge, ObjectNotFound
from delegation.storage.listing.model import ListedObject
from delegation.storage.listing.reports import ReportStore
from delegation.storage.locations import ObjectLocation, uri_of
from delegation.worksets.chunks import Stored
from delegation.worksets.sorting import Sorter
from polaris_common.errors import shown

_DIGEST: Final = 20
_CHECKSUM_BYTES: Final = 1_000


class _FileProgress(Stored):
    """What a file of a report has at the location; `seen` are witnesses of the set `witnesses` that it has."""

    report: str
    file: str
    age: int
    witnesses: str
    files: int
    bytes: int
    seen: tuple[str, ...]
    parts: tuple[ListedPart, ...]
    signs: tuple[ListedPart, ...] | None = None


def read_report(ctx: OrphanContext, eligible: Eligible, plan_id: str, *, resume: bool = True) -> LocationListing:
    """Read the report that the options name, and store what may be an orphan; `resume` is as for `walk`.

    The time of the listing is that at which S3 began the report. Raises GuardRefused (INVENTORY_REFUSED), OrphansError
    (INVENTORY_DAMAGED) and the errors of the stores.
    """
    uri, reports = ctx.options.inventory, ctx.reports
    if uri is None or reports is None:
        raise inventory_refused(uri or "", "this process reads no reports")
    look = look_at(ctx, eligible.root)
    report = _opened(ctx, reports, manifest_of(uri), eligible.root.bucket, look.now)
    return _Reading(ctx, eligible, plan_id, _Opened(report, reports, look), resume=resume).run()


def _opened(ctx: OrphanContext, reports: ReportStore, where: ObjectLocation, bucket: str, now: int) -> InventoryReport:
    beside = ObjectLocation(where.bucket, f"{where.key.rpartition('/')[0]}/{CHECKSUM}")
    try:
        data = reports.read(where, limit=MANIFEST_BYTES)
        checksum = reports.read(beside, limit=_CHECKSUM_BYTES)
    except ObjectNotFound as error:
        raise inventory_refused(where.uri, f"it is not there, or not complete yet ({error})") from None
    except FileTooLarge as error:
        raise inventory_damaged(where.uri, f"is larger than any that S3 writes ({error})") from None
    return parse_manifest(where, data, checksum, bucket=bucket, places=ctx.options.inventories, now=now)


class _Opened(NamedTuple):
    """A report that may be read, where it is, and what is at the location now."""

    report: InventoryReport
    reports: ReportStore
    look: LocationLook


class _Reading:
    def __init__(self, ctx: OrphanContext, eligible: Eligible, plan_id: str, opened: _Opened, *, resume: bool) -> None:
        report = opened.report
        self._ctx = ctx
        self._eligible = eligible
        self._plan_id = plan_id
        self._report = report
        self._reports = opened.reports
        self._resume = resume
        self._rows = RowReader(report, f"{eligible.root.prefix}/")
        self._witnesses = self._same_witnesses(opened.look.older_than(report.at - LAG))
        self._set = _digest(*sorted(self._witnesses))

    def run(self) -> LocationListing:
        total, seen = ListedAmount(), set[str]()
        parts, of_signs = list[ListedPart](), list[ListedPart]()
        for number, file in enumerate(self._report.files):
            self._ctx.attempt.checkpoint()
            found = self._known(file) or self._read(number, file)
            total += ListedAmount(found.files, found.bytes)
            seen.update(found.seen)
            parts += found.parts
            of_signs += found.signs or ()
            self._ctx.listed(total.files)
        if missing := sorted(self._witnesses - seen):
            raise inventory_refused(
                self._report.uri,
                f"it lacks {shown(missing)}, written long before it ({len(missing)} of {len(self._witnesses)} that "
                "were looked at), so it is of another prefix, or from before a restore: name a later report, of a "
                "configuration that has the table's whole location",
            )
        return LocationListing(total, self._report.at, self._sorted(parts), tuple(of_signs))

    def _read(self, number: int, file: ReportFile) -> _FileProgress:
        """Store the candidates of a file and record them; raise OrphansError (INVENTORY_DAMAGED)."""
        writer, of_signs = self._writer(f"{number:05d}-"), self._writer(f"signs-{number:05d}-")
        total, seen = ListedAmount(), set[str]()
        where = ObjectLocation(manifest_of(self._report.uri).bucket, file.key)
        try:
            with closing(self._reports.pieces(where)) as pieces, closing(checked(pieces, file)) as whole:
                for lines in lines_of(whole, file):
                    self._ctx.attempt.checkpoint()
                    rows = self._rows.read(lines, file)
                    total += ListedAmount(len(rows.objects), sum(one.size for one in rows.objects))
                    seen |= self._witnesses.intersection(rows.keys)
                    writer.extend(self._candidates(rows.objects))
                    of_signs.extend(signs_among(self._eligible.root, rows.objects))
        except ObjectNotFound:
            raise inventory_damaged(file.key, "is not there") from None
        writer.flush()
        of_signs.flush()
        found = _FileProgress(
            report=self._report.digest,
            file=file.key,
            age=self._eligible.age,
            witnesses=self._set,
            files=total.files,
            bytes=total.bytes,
            seen=tuple(sorted(seen)),
            parts=writer.part(),
            signs=of_signs.part(),
        )
        self._ctx.plans.put(self._key(file.key), found.model_dump_json().encode())
        return found

    def _candidates(self, objects: Sequence[ListedObject]) -> list[Candidate]:
        root = uri_of(self._eligible.root.bucket, "")
        # An object without an ETag could not be recognized when it is to be deleted.
        some = [one for one in self._eligible.some(objects, self._report.at) if one.etag != '""']
        return [Candidate(root + one.key, one.size, one.etag, one.modified) for one in some]

    def _known(self, file: ReportFile) -> _FileProgress | None:
        """Return what an earlier attempt read of a file with the same age and witnesses."""
        if not self._resume:
            return None
        try:
            found = _FileProgress.model_validate(json.loads(self._ctx.plans.get(self._key(file.key))))
        except (ObjectNotFound, ValueError, ValidationError):
            return None
        if found.signs is None:
            return None
        mine = (self._report.digest, file.key, self._eligible.age, self._set)
        return found if (found.report, found.file, found.age, found.witnesses) == mine else None

    def _same_witnesses(self, fresh: frozenset[str]) -> frozenset[str]:
        """Return the witnesses of an earlier attempt, so that what it read serves this one; else the fresh ones."""
        key = self._key("")
        if self._resume:
            try:
                return frozenset(str(one) for one in json.loads(self._ctx.plans.get(key)))
            except (ObjectNotFound, ValueError, TypeError):
                pass
        self._ctx.plans.put(key, json.dumps(sorted(fresh)).encode())
        return fresh

    def _sorted(self, parts: Sequence[ListedPart]) -> tuple[ListedPart, ...]:
        """Store all candidates in order, without those of a key that the report has twice: which is true is unknown."""
        ctx = self._ctx
        writer = self._writer("report-")
        with Sorter(run_records=ctx.settings.run_records) as by_key:
            for some in candidates_of(ctx.plans, ((part.plan_id, part.chunks) for part in parts)):
                ctx.attempt.checkpoint()
                by_key.extend([(f"{one.path}{END}{one.etag}{END}{one.modified}", one.size, 0) for one in some])
            for rows in _once(by_key.batches()):
                writer.extend(rows)
        writer.flush()
        return writer.part()

    def _writer(self, name: str) -> CandidateWriter:
        return CandidateWriter(self._ctx.plans, self._plan_id, name, chunk_paths=self._ctx.settings.chunk_paths)

    def _key(self, file: str) -> str:
        digest = _digest(self._ctx.submission, self._report.digest, file)
        return f"{self._ctx.attempt.task_id}/listed/{digest}.json"


def _once(batches: Iterable[list[tuple[str, int, int]]]) -> Iterator[list[Candidate]]:
    """Yield the candidates whose path is in one row only, from sorted rows."""
    held: Candidate | None = None
    is_single = False
    for rows in batches:
        found: list[Candidate] = []
        for text, size, _ in rows:
            path, etag, modified = text.split(END)
            if held is not None and held.path == path:
                is_single = False
                continue
            if held is not None and is_single:
                found.append(held)
            held, is_single = Candidate(path, size, etag, int(modified)), True
        yield found
    if held is not None and is_single:
        yield [held]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGEST]
