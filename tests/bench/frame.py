"""What benchmarks share: options, medians, the machine's load, and servers and contenders in processes of their own."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
Figures = dict[str, float]


def options(
    text: str | None, *positional: str, chosen: Mapping[str, Sequence[str]] | None = None, **defaults: Any
) -> Any:
    """Parse the command line: a default is a number, a text, a list for several values, or False for a switch.

    `chosen` has the words that an option takes, all of them by default.
    """
    parser = argparse.ArgumentParser(description=text and text.splitlines()[0])
    for name in positional:
        parser.add_argument(name)
    for name, words in (chosen or {}).items():
        parser.add_argument(f"--{name}", nargs="+", choices=sorted(words), default=list(words))
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, list):
            parser.add_argument(flag, type=type(default[0]), nargs="*", default=default)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args()


def load() -> str:
    """Return the load average of the machine."""
    return f"{os.getloadavg()[0]:.1f}"


def median(runs: Sequence[Figures], what: str) -> float:
    return statistics.median(one[what] for one in runs)


def contend(contenders: Mapping[str, Callable[[Any], Figures]], given: Any) -> None:
    """Run the contender that the command line names, and print its figures as the last line."""
    sys.stdout.write(f"\n{json.dumps(contenders[given.name](given))}\n")


class ServerProcess:
    """A server in a process of its own, which prints its port; a context manager."""

    def __init__(self, script: str, *arguments: object) -> None:
        self._command = [sys.executable, script, *map(str, arguments)]
        self.url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        self.url = f"http://127.0.0.1:{int(line)}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._process:
            self._process.terminate()
