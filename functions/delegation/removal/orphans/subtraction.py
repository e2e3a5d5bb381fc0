"""Candidates minus needed files: the plan, and a smaller one whenever one of its files turns out to be needed. The rows
are sorted, so one process and a task with a part of all rows (`needed`) work alike."""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from delegation.iceberg.paths import Row
from delegation.removal.chunks import Chunk
from delegation.removal.index import SAMPLE, FileTally, Finding
from delegation.removal.orphans.errors import AgeTooShort, AreaLeftAlone, PrefixMismatch
from delegation.removal.orphans.index import Candidate, CandidateWriter
from delegation.removal.orphans.place import END, Equal, MismatchMode, joined_all
from delegation.removal.path_guard import NOBODYS
from delegation.storage.base import PlanStore
from delegation.storage.locations import FOREIGN_LOCATION, ForeignLocations, Roots

_AFTER_END: Final = chr(ord(END) + 1)
_KEEP: Final = (PrefixMismatch.code, AreaLeftAlone.code, AgeTooShort.code, FOREIGN_LOCATION)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Chunks of the candidates that nothing needs, how many are needed, and findings about others that stay. `held` are
    chunks of those that stay only for foreign tables, by the number of the first that needs them."""

    chunks: tuple[Chunk, ...]
    needed: int
    findings: tuple[Finding, ...]
    held: Mapping[int, Sequence[Chunk]]

    @property
    def kept(self) -> int:
        return self.needed + sum(finding.count for finding in self.findings if finding.code in _KEEP) + len(self.held)


@dataclass(frozen=True, slots=True)
class Rules:
    """What stays beside needed files, as plain values that are sent to executors. These are files below `left` places
    (canonical, with a trailing slash), by `mode`, not written before a time in seconds since 1970, at `foreign`
    locations, and below `places`, innermost first, for the foreign table with that number."""

    mode: MismatchMode
    left: tuple[str, ...] = ()
    written_before: int | None = None
    foreign: ForeignLocations = NOBODYS
    places: tuple[tuple[str, int], ...] = ()


class Subtraction:
    """What becomes of the candidates in sorted rows: those that nothing needs, and tallies of the others."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._left = Roots(rules.left)
        self.needed = 0
        self.stay = {code: FileTally() for code in _KEEP}

    def orphans(
        self, batches: Iterable[list[Row]], texts: Iterable[list[str]], foreign: Iterable[list[Row]]
    ) -> Iterator[tuple[list[Row], list[Row]]]:
        """Yield those that nothing needs, and those that stay for `foreign` tables, and count the others.

        Rows have path and ETag with END between, time and size; those for foreign tables have the table's number after
        the ETag. `foreign` are sorted rows of texts as for needed files, with the number.
        """
        mode, written_before = self._rules.mode, self._rules.written_before
        mismatched, left, young, theirs = (self.stay[code] for code in _KEEP)
        numbers = _ForeignNumbers(foreign, self._rules.places)
        for rows in compared(batches, texts):
            self.needed += rows.needed
            orphans, held = list[Row](), list[Row]()
            number_of = numbers.among(rows.left)
            for text, modified, size in rows.left:
                folded, _, path, etag = text.split(END)
                if self._rules.foreign.contain(path):
                    theirs.add(path)
                elif folded in rows.others and mode is not MismatchMode.DELETE:
                    mismatched.add(path)
                elif self._left.contains(path):
                    left.add(path)
                elif written_before is not None and modified >= written_before:
                    young.add(path)
                elif number := number_of(folded, path):
                    held.append((f"{path}{END}{etag}{END}{number}", modified, size))
                else:
                    orphans.append((f"{path}{END}{etag}", modified, size))
            if orphans or held:
                yield orphans, held

    def others(
        self, batches: Iterable[list[Row]], texts: Iterable[list[str]], foreign: Iterable[list[Row]]
    ) -> Iterator[list[Row]]:
        """Yield those that are or may be needed, in the form of `orphans`. Counts nothing."""
        numbers = _ForeignNumbers(foreign, self._rules.places)
        for rows in compared(batches, texts):
            nobodys = frozenset(rows.left)
            others: list[Row] = []
            number_of = numbers.among(rows.left)
            for row in rows.rows:
                text, modified, size = row
                folded, _, path, etag = text.split(END)
                is_others = self._left.contains(path) or self._rules.foreign.contain(path)
                if row not in nobodys or is_others or number_of(folded, path):
                    others.append((f"{path}{END}{etag}", modified, size))
            if others:
                yield others

    def add(self, needed: int, stay: Iterable[tuple[str, int, Sequence[str]]], equal: Equal) -> None:
        """Add the figures of a part of all rows, with the first paths of each code. Other parts have other paths."""
        self.needed += needed
        for code, count, sample in stay:
            tally = self.stay[code]
            tally.count += count
            # As if all had been compared in the order of their texts.
            tally.sample = sorted((*tally.sample, *sample), key=lambda path: (joined_all([path], equal)[0], path))
            del tally.sample[SAMPLE:]

    def check(self) -> None:
        """Raise PrefixMismatch if the rules refuse the result."""
        mismatched = self.stay[PrefixMismatch.code]
        if mismatched.count and self._rules.mode is MismatchMode.ERROR:
            raise PrefixMismatch(mismatched.count, mismatched.sample)

    def result(
        self, chunks: Iterable[Chunk], held: Mapping[int, Sequence[Chunk]], beside: Iterable[Finding]
    ) -> Orphans:
        """Return the result, with the chunks of all orphans, and of those that stay for foreign tables. `beside` are
        findings that are not about candidates."""
        tallies = ((code, self.stay[code]) for code in _KEEP)
        findings = (tally.finding(code) for code, tally in tallies if tally.count)
        return Orphans(tuple(chunks), self.needed, (*findings, *beside), held)


class _ForeignNumbers:
    """The numbers of the foreign tables that need files, in step with sorted candidates."""

    def __init__(self, rows: Iterable[list[Row]], places: Sequence[tuple[str, int]]) -> None:
        self._lists = iter(rows)
        self._some: list[Row] = []
        self._places = places
        self._numbers: dict[str, int] = {}

    def among(self, rows: Sequence[Row]) -> Callable[[str, str], int]:
        """Return a function of a row's folded and canonical path that returns the number of a table, 0 for none."""
        if rows:
            first, last = rows[0][0].partition(END)[0], rows[-1][0].partition(END)[0]
            # Rows of one path may be in two batches.
            self._numbers = {first: self._numbers[first]} if first in self._numbers else {}
            while True:
                end = bisect_left(self._some, (f"{last}{_AFTER_END}",))
                for text, number, _ in self._some[:end]:
                    self._numbers.setdefault(text.partition(END)[0], number)
                del self._some[:end]
                if self._some or not (some := next(self._lists, [])):
                    break
                self._some = list(some)
        return self._number_of

    def _number_of(self, folded: str, path: str) -> int:
        number = self._numbers.get(folded, 0)
        return number or next((number for place, number in self._places if path.startswith(place)), 0)


def write_rows(writer: CandidateWriter, batches: Iterable[list[Row]]) -> tuple[Chunk, ...]:
    """Store sorted rows of Subtraction.orphans as chunks of candidates, and return these."""
    for batch in batches:
        writer.extend(candidates_in(batch))
    writer.flush()
    return tuple(writer.chunks)


def write_held(
    store: PlanStore, plan_id: str, name: str, batches: Iterable[list[Row]], most: int
) -> dict[int, list[Chunk]]:
    """Store sorted rows of files that stay as chunks of candidates by the tables' numbers; `most` are in memory."""
    writers, held = dict[int, CandidateWriter](), 0
    for batch in batches:
        for text, modified, size in batch:
            path, etag, of = text.split(END)
            number = int(of)
            if number not in writers:
                writers[number] = CandidateWriter(store, plan_id, f"held-{number:04d}-{name}", chunk_paths=most)
            writers[number].extend([Candidate(path, size, etag, modified)])
        held += len(batch)
        if held >= most:
            held = 0
            for writer in writers.values():
                writer.flush()
    for writer in writers.values():
        writer.flush()
    return {number: writer.chunks for number, writer in sorted(writers.items())}


def candidates_in(rows: Iterable[Row]) -> list[Candidate]:
    """Return rows of Subtraction.orphans as candidates."""
    pairs = [(text.split(END), size, modified) for text, modified, size in rows]
    return [Candidate(path, size, etag, modified) for (path, etag), size, modified in pairs]


def rows_of(some: list[Candidate], equal: Equal) -> list[Row]:
    """Return candidates as rows to compare: the text to join by, path and ETag with END between; time; size."""
    # A candidate's path is canonical and has neither # nor ?, so it has one spelling.
    texts = joined_all([candidate.path for candidate in some], equal)
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
    """Compare sorted rows with sorted texts of needed files, batch by batch. All candidates are at one location, so
    they have the same scheme and authority."""
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
