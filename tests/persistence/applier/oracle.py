"""Iceberg Java as a process that answers questions line by line: with sequences of commits (Oracle.java), or others."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from infra.local.aws.dynamodb import fetch, java

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
