"""Candidates minus what is needed: the plan, and a smaller one whenever something in it turns out to be needed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from delegation.iceberg.files import Row
from delegation.operations.orphans.context import OrphanContext
from delegation.operations.orphans.errors import AgeTooShort, AreaLeftAlone, PrefixMismatch
from delegation.operations.orphans.index import Candidate, CandidateWriter
from delegation.operations.orphans.planning.keep import KeepSet
from delegation.operations.orphans.spelling import END, MismatchMode, joined
from delegation.worksets.chunks import Chunk
from delegation.worksets.index import SAMPLE, Finding
from delegation.worksets.sorting import Sorter


@dataclass(slots=True)
class _StayTally:
    """How many files stay for a reason that a finding names, and the first of them."""

    count: int = 0
    sample: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        self.count += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(path)

    def finding(self, code: str) -> list[Finding]:
        return [Finding(code=code, count=self.count, sample=tuple(self.sample))] if self.count else []


@dataclass(frozen=True, slots=True)
class Orphans:
    """Chunks of the candidates that nothing needs, how many are needed, and findings about others that stay."""

    chunks: tuple[Chunk, ...]
    needed: int
    findings: tuple[Finding, ...]

    @property
    def kept(self) -> int:
        return self.needed + sum(one.count for one in self.findings if one.code in _KEEP)


_KEEP: Final = (PrefixMismatch.code, AreaLeftAlone.code, AgeTooShort.code)


def subtracted(
    ctx: OrphanContext,
    candidates: Iterable[Candidate],
    keep: KeepSet,
    plan_id: str,
    *,
    written_before: int | None = None,
) -> Orphans:
    """Store the candidates that nothing needs as chunks of a plan; raise PrefixMismatch.

    Those that were not written before a time, in seconds since 1970, stay. Memory is bounded by two sort runs and a
    chunk.
    """
    records = ctx.settings.run_records
    needed, mismatched, left, young = 0, _StayTally(), _StayTally(), _StayTally()
    mode = ctx.options.mismatch
    with Sorter(run_records=records) as by_path, Sorter(run_records=records) as orphans:
        by_path.extend(row for one in candidates for row in _rows(one, ctx))
        for (text, modified, size), own, other in _compared(chain.from_iterable(by_path.batches()), keep.texts()):
            _, _, path, etag = text.split(END)
            if own:
                needed += 1
            elif other and mode is not MismatchMode.DELETE:
                mismatched.add(path)
            elif keep.left.contains(path):
                left.add(path)
            elif written_before is not None and modified >= written_before:
                young.add(path)
            else:
                orphans.extend([(f"{path}{END}{etag}", modified, size)])
        if mismatched.count and mode is MismatchMode.ERROR:
            raise PrefixMismatch(mismatched.count, mismatched.sample)
        writer = CandidateWriter(ctx.plans, plan_id, "", chunk_paths=ctx.settings.chunk_paths)
        for text, modified, size in chain.from_iterable(orphans.batches()):
            path, _, etag = text.partition(END)
            writer.add(Candidate(path, size, etag, modified))
        writer.flush()
    tallies = zip((mismatched, left, young), _KEEP, strict=True)
    findings = tuple(chain.from_iterable(tally.finding(code) for tally, code in tallies))
    return Orphans(tuple(writer.chunks), needed, findings)


def _rows(one: Candidate, ctx: OrphanContext) -> list[Row]:
    # A candidate's path is canonical and has neither # nor ?, so it has one spelling.
    (text,) = joined(one.path, ctx.options.equal)
    return [(f"{text}{END}{one.path}{END}{one.etag}", one.modified, one.size)]


def _compared(rows: Iterable[Row], needed: Iterable[str]) -> Iterator[tuple[Row, bool, bool]]:
    """Yield each sorted row with whether its path is needed, and whether under another scheme or authority only.

    All candidates are at one location, so they have the same scheme and authority.
    """
    texts = iter(needed)
    at = next(texts, None)
    key, own, other = None, False, False
    for row in rows:
        path, prefix, _ = row[0].split(END, 2)
        if path != key:
            key, own, other = path, False, False
            while at is not None and at.partition(END)[0] < path:
                at = next(texts, None)
            while at is not None and at.partition(END)[0] == path:
                same = at.partition(END)[2] == prefix
                own, other = own or same, other or not same
                at = next(texts, None)
        yield row, own, other and not own
