"""Iceberg Java as a process that answers questions line by line: with sequences of commits (Oracle.java), or others."""

import argparse
import contextlib
import json
import lzma
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.local.aws.dynamodb import fetch, java
from tests.kit.printing import print_now
from tests.kit.running import Running

Json = dict[str, Any]

POM: Final = Path(__file__).with_name("oracle-pom.xml")
SOURCE: Final = Path(__file__).with_name("Oracle.java")


class Oracle:
    """A running oracle; one question at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, sequence: Json) -> Json:
        """Return the answer to a sequence of commits, or what else its source answers; see there for both."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(sequence) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the oracle ended with {self._process.wait()} at {json.dumps(sequence)[:2_000]}")
        answer: Json = json.loads(line)
        return answer


@contextlib.contextmanager
def oracle(source: Path = SOURCE) -> Iterator[Oracle]:
    """Run the oracle of a Java file; raises UnavailableError without Java or Maven."""
    jars = fetch(POM, "iceberg-oracle")
    command = [java(), "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{jars}/*", str(source)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    try:
        yield Oracle(process)
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Fuzz:
    """Questions of seeds, and what differs in Iceberg's answers; totals named `message: …` are shown on demand."""

    name: str
    counted: str
    source: Path
    fixtures: Callable[[Oracle, Counter[str]], list[Json]]
    question: Callable[[int, list[Json]], Json]
    compared: Callable[[Json, Json, Counter[str]], Iterable[str]]

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Ask and compare; print differences and totals. Return 1 if anything differs."""
        parser = argparse.ArgumentParser(prog=self.name)
        parser.add_argument("--sequences", type=int, default=10_000)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--record", type=Path, help="write questions and answers to this file, .jsonl.xz")
        parser.add_argument("--messages", action="store_true", help="print the messages that differ from Iceberg's")
        options = parser.parse_args(arguments)
        began, recorded, totals, running = time.monotonic(), list[str](), Counter[str](), Running(every=30.0)
        with oracle(self.source) as ask:
            fixtures = self.fixtures(ask, totals)
            totals["fixtures"] = len(fixtures)
            for seed in range(options.seed, options.seed + options.sequences):
                asked = self.question(seed, fixtures)
                answer = ask.ask(asked)
                totals[self.counted] += 1
                for line in self.compared(asked, answer, totals):
                    totals["differences"] += 1
                    print_now(f"seed {seed}: {line}")
                running.note(self._line(totals))
                if options.record:
                    both = {"asked": asked, "answer": answer}
                    recorded.append(json.dumps(both, ensure_ascii=False, separators=(",", ":")))
        if options.record:
            options.record.write_bytes(lzma.compress(("\n".join(recorded) + "\n").encode(), preset=9))
        for name, count in sorted(totals.items()) if options.messages else ():
            if name.startswith("message: "):
                print_now(f"{count:6} {name}")
        print_now(f"{self._line(totals)}; {time.monotonic() - began:.0f} s")
        return 1 if totals["differences"] else 0

    def _line(self, totals: Counter[str]) -> str:
        shown = sorted((name, count) for name, count in totals.items() if not name.startswith("message: "))
        return f"{self.name}: {', '.join(f'{name} {count:,}' for name, count in shown)}"
