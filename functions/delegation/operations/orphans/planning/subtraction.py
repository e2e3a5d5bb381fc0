"""Candidates minus what is needed: the plan, and a smaller one whenever something in it turns out to be needed."""

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from delegation.iceberg.files import Row
from delegation.operations.orphans.context import OrphanContext
from delegation.operations.orphans.errors import AgeTooShort, AreaLeftAlone, PrefixMismatch
from delegation.operations.orphans.index import Candidate, CandidateWriter
from delegation.operations.orphans.planning.keep import KeepSet
from delegation.operations.orphans.spelling import END, MismatchMode, joined_all
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


_AFTER_END: Final = chr(ord(END) + 1)
_KEEP: Final = (PrefixMismatch.code, AreaLeftAlone.code, AgeTooShort.code)


def subtracted(
    ctx: OrphanContext,
    candidates: Iterable[list[Candidate]],
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
        for some in candidates:
            by_path.extend(rows_of(some, ctx))
        for rows in compared(by_path.batches(), keep.texts()):
            needed += rows.needed
            for text, modified, size in rows.left:
                folded, _, path, etag = text.split(END)
                if folded in rows.others and mode is not MismatchMode.DELETE:
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
        for batch in orphans.batches():
            pairs = [(text.split(END), size, modified) for text, modified, size in batch]
            writer.extend([Candidate(path, size, etag, modified) for (path, etag), size, modified in pairs])
        writer.flush()
    tallies = zip((mismatched, left, young), _KEEP, strict=True)
    findings = tuple(chain.from_iterable(tally.finding(code) for tally, code in tallies))
    return Orphans(tuple(writer.chunks), needed, findings)


def rows_of(some: list[Candidate], ctx: OrphanContext) -> list[Row]:
    """Return candidates as rows to compare: the text to join by, path and ETag with END between; time; size."""
    # A candidate's path is canonical and has neither # nor ?, so it has one spelling.
    texts = joined_all([one.path for one in some], ctx.options.equal)
    return [
        (f"{text}{END}{path}{END}{etag}", modified, size)
        for text, (path, size, etag, modified) in zip(texts, some, strict=True)
    ]


class ComparedRows(NamedTuple):
    """Rows, how many are needed, the others, and the paths that needed files have under another prefix."""

    rows: list[Row]

    needed: int
    left: list[Row]
    others: Container[str]


def compared(batches: Iterable[list[Row]], needed: Iterable[list[str]]) -> Iterator[ComparedRows]:
    """Compare sorted rows with sorted texts of needed files, batch by batch.

    All candidates are at one location, so they have the same scheme and authority.
    """
    lists = iter(needed)
    some: list[str] = []
    own, others = set[str](), set[str]()
    for rows in batches:
        keys = [text.rsplit(END, 2)[0] for text, _, _ in rows]
        wanted = frozenset(keys)
        last, _, prefix = keys[-1].partition(END)
        # Rows of one path may be in two batches.
        own &= wanted
        if others:
            others &= {key.partition(END)[0] for key in wanted}
        while True:
            # No other path is between this one and the next.
            end = bisect_left(some, f"{last}{_AFTER_END}")
            passed, some = some[:end], some[end:]
            own |= wanted.intersection(passed)
            if elsewhere := [text for text in passed if not text.endswith(f"{END}{prefix}")]:
                paths = (text.partition(END)[0] for text in elsewhere)
                others.update(path for path in paths if f"{path}{END}{prefix}" in wanted)
            if some or not (some := next(lists, [])):
                break
        left = [row for row, key in zip(rows, keys, strict=True) if key not in own] if len(own) < len(wanted) else []
        yield ComparedRows(rows, len(rows) - len(left), left, others)
