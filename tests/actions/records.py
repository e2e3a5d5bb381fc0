"""What Iceberg's actions answered, in files that the ordinary tests compare, and the programs that ask them."""

import argparse
import collections
import json
import logging
import lzma
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from tests.fixtures.lakehouse import Lakehouse
from tests.kit.printing import print_now
from tests.kit.running import Running

Json = dict[str, Any]
Totals = collections.Counter[str]
_EVERY: Final = 10
"""Answers between two writes of the record: a run that is ended leaves what it has."""


class AskedTable(Protocol):
    """A question about a table of a scenario; `key` names it in the record."""

    @property
    def scenario(self) -> str: ...

    @property
    def table(self) -> str: ...

    @property
    def key(self) -> str: ...


Asked = TypeVar("Asked", bound=AskedTable)


def recorded(path: Path) -> dict[str, Json]:
    """Return the answers that a file has, by question; none if there is no file."""
    if not path.exists():
        return {}
    answers = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
    return {one["question"]: one for one in answers}


def _record(path: Path, known: dict[str, Json]) -> None:
    lines = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for _, one in sorted(known.items())]
    path.write_bytes(lzma.compress(("\n".join(lines) + "\n").encode(), preset=9))


@dataclass(frozen=True, slots=True)
class Comparison(Generic[Asked]):
    """A comparison of an action of Iceberg's with this service.

    `answers` yields the action's answer to each question, `compared` the differences of one, counting what is the same.
    """

    name: str
    counted: str
    questions: Callable[[], Sequence[Asked]]
    answers: Callable[[Lakehouse, Sequence[Asked]], Iterator[tuple[Asked, Json]]]
    compared: Callable[[Asked, Json, Totals], Iterator[str]]
    record: Path

    def counts_of(self, totals: Totals) -> str:
        """Return the totals as text."""
        return f"{self.name}: {', '.join(f'{name} {count:,}' for name, count in sorted(totals.items()))}"

    def main(self, description: str | None) -> None:
        """Ask Iceberg as the command line says, compare, and exit 1 on a difference."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--only", default="", help="a part of the questions' names, such as statistics.v3")
        parser.add_argument("--most", type=int, default=None, help="how many questions are asked")
        parser.add_argument(
            "--record", action="store_true", help=f"add the answers to {self.record.name}; ask what it lacks"
        )
        options = parser.parse_args()
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        questions = self.questions()
        before = recorded(self.record) if options.record else {}
        known = {one.key: before[one.key] for one in questions if one.key in before}
        asked = [one for one in questions if options.only in one.key and one.key not in known][: options.most]
        totals: Totals = collections.Counter(tables=len({(one.scenario, one.table) for one in asked}))
        running = Running(every=30.0)
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, Lakehouse(Path(folder)) as lake:
            for question, answer in self.answers(lake, asked):
                totals[self.counted] += 1
                known[question.key] = answer
                for line in self.compared(question, answer, totals):
                    totals["differences"] += 1
                    print_now(f"{question.key}: {line}")
                running.note(self.counts_of(totals))
                if options.record and totals[self.counted] % _EVERY == 0:
                    _record(self.record, known)
        if options.record:
            _record(self.record, known)
        print_now(f"{self.counts_of(totals)}; {time.monotonic() - began:.0f} s")
        sys.exit(1 if totals["differences"] else 0)
