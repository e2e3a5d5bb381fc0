"""One explorer of orders of events, for every harness that has a world, events and an invariant.

A `Story` is one history: its world, its events, which draw from `random`, and its invariant. `Explorer` plays the
stories of seeds in blocks, each a process with a PYTHONHASHSEED of its own. It prints totals as it goes, continues a
run that was stopped, shortens what went wrong to the events that it takes, and shows that planted faults are caught.
`play_all` plays the cases of a matrix, such as every call at which a process can be killed.
"""

import argparse
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from tests.kit.printing import print_now
from tests.kit.running import Running

BLOCK: Final = 100
"""The seeds that one process plays."""
NO_MUTATION: Final = "none"


class WrongOutcome(AssertionError):
    """What happened breaks the invariant."""


class Story:
    """One history; an event, or a check of the invariant, that finds something wrong raises WrongOutcome."""

    steps: ClassVar[int]

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.told: list[str] = []
        """What happened, in order, for a person who looks at what went wrong."""

    @staticmethod
    def surroundings(seed: int) -> AbstractContextManager[object]:
        """Return what holds from the making of the world to its end."""
        return nullcontext()

    def begin(self) -> None:
        """Prepare the world."""

    def act(self) -> None:
        """Have one event happen, which `random` chooses."""
        raise NotImplementedError

    def check(self) -> None:
        """Check the invariant after an event."""

    def end(self) -> None:
        """Play what follows the last event, and check what holds then."""

    def close(self) -> None:
        """Free what the world holds."""


@dataclass(frozen=True)
class Played:
    """What one story came to; `states` are those of its choices before each event and before its end."""

    seed: int
    counts: Counter[str]
    wrong: str | None
    told: list[str]
    states: list[Any] = field(repr=False)

    def __str__(self) -> str:
        return "\n  ".join([f"seed {self.seed}: {self.wrong}", *self.told])


def play(story: type[Story], seed: int, *, without: frozenset[int] = frozenset(), states: Sequence[Any] = ()) -> Played:
    """Play a story, perhaps without some events; each other one makes the choices that it made in `states`."""
    reached: list[Any] = []
    wrong = None
    with story.surroundings(seed), closing(story(seed)) as it:
        try:
            it.begin()
            for step in range(it.steps + 1):
                if step < len(states):
                    it.random.setstate(states[step])
                reached.append(it.random.getstate())
                if step in without:
                    continue
                if step == it.steps:
                    it.end()
                else:
                    it.act()
                    it.check()
        except WrongOutcome as error:
            wrong = str(error)
        except Exception as error:
            error.add_note(f"in the story of seed {seed}")
            raise
        return Played(seed, it.counts, wrong, it.told, reached)


def shortened(story: type[Story], found: Played) -> Played:
    """Leave out the events without which a story goes wrong as well."""
    without = frozenset(range(len(found.states), story.steps + 1))
    best, size = found, (len(found.states) + 1) // 2
    while size:
        for first in range(0, len(found.states), size):
            fewer = without | set(range(first, first + size))
            try:
                again = play(story, found.seed, without=fewer, states=found.states)
            except Exception:  # noqa: BLE001 - an event may need one that is left out
                continue
            if fewer > without and again.wrong is not None:
                best, without = again, fewer
        size //= 2
    return best


@dataclass(frozen=True)
class Explorer:
    """A harness: its stories, how its totals read, and the safeguards that a run can be without.

    `module` is what `python -m` runs, with `main`.
    """

    module: str
    story: type[Story]
    line: Callable[[Counter[str]], str] = lambda total: ", ".join(f"{total[name]} {name}" for name in sorted(total))
    mutations: Mapping[str, Callable[[], AbstractContextManager[object]]] = field(default_factory=dict)
    hash_seeds: int = 1
    seeds: int = 1_000

    def total(self, seeds: Iterable[int]) -> Counter[str]:
        """Play stories; return what they counted. Raises WrongOutcome at the first that goes wrong."""
        total: Counter[str] = Counter()
        for seed in seeds:
            found = play(self.story, seed)
            if found.wrong is not None:
                raise WrongOutcome(str(found))
            total += found.counts
        return total

    def first_bad(self, mutation: str, seeds: Iterable[int]) -> int | None:
        """Return the first of these seeds whose story goes wrong without a safeguard, None if all go well."""
        with self.mutations[mutation]():
            return next((seed for seed in seeds if play(self.story, seed).wrong is not None), None)

    def main(self, arguments: Sequence[str]) -> int:
        """Run what the arguments ask for; return the exit status.

        1 if a story goes wrong. With a mutation 0 if one notices, 1 if none does, 2 if the mutation is unknown.
        """
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}")
        parser.add_argument("--histories", "--seeds", type=int, default=self.seeds)
        parser.add_argument("--seed", "--first", type=int, default=1, help="the first seed")
        parser.add_argument("--processes", type=int, default=2)
        parser.add_argument("--out", type=Path, help="the blocks that are done, which a run continues if it is stopped")
        parser.add_argument("--mutation", default=NO_MUTATION, help=f"one of {', '.join(self.mutations)}")
        parser.add_argument("--block", action="store_true", help="play in this process, and print a line of JSON")
        chosen = parser.parse_args(arguments)
        seeds = range(chosen.seed, chosen.seed + chosen.histories)
        logging.disable(logging.WARNING)  # work that is killed or refused warns
        if chosen.block:
            sys.stdout.write(json.dumps(self._block(seeds)) + "\n")
            return 0
        if chosen.mutation == NO_MUTATION:
            return self._in_blocks(seeds, chosen.processes, chosen.out)
        if chosen.mutation not in self.mutations:
            print_now(f"unknown mutation {chosen.mutation}; choose one of {', '.join(self.mutations)}")
            return 2
        caught = self.first_bad(chosen.mutation, seeds)
        print_now("not caught" if caught is None else f"caught at seed {caught}")
        return 1 if caught is None else 0

    def _block(self, seeds: range) -> dict[str, Any]:
        total: Counter[str] = Counter(histories=len(seeds))
        messages = []
        for seed in seeds:
            found = play(self.story, seed)
            total += found.counts
            if found.wrong is not None:
                total["bad"] += 1
                messages.append(str(shortened(self.story, found)))
        return {"first": seeds[0], "hash_seed": os.environ.get("PYTHONHASHSEED", ""), "messages": messages, **total}

    def _in_blocks(self, seeds: range, processes: int, out: Path | None) -> int:
        began = time.monotonic()
        lines = out.read_text(encoding="utf-8").splitlines() if out is not None and out.exists() else []
        done = {line["first"]: line for line in map(json.loads, lines)}
        blocks = [seeds[at : at + BLOCK] for at in range(0, len(seeds), BLOCK)]
        total: Counter[str] = Counter()
        for block in blocks:
            if block[0] in done:
                self._add(total, done[block[0]], began)
        with ThreadPoolExecutor(processes) as pool:
            left = [pool.submit(self._in_process, block) for block in blocks if block[0] not in done]
            for future in as_completed(left):
                if out is not None:
                    with out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(future.result()) + "\n")
                self._add(total, future.result(), began)
        if out is not None:
            out.unlink(missing_ok=True)  # this run ended: the next one plays all of it
        return 1 if total["bad"] else 0

    def _in_process(self, block: range) -> dict[str, Any]:
        hash_seed = str(block[0] // BLOCK % self.hash_seeds)
        command = [
            sys.executable,
            "-m",
            self.module,
            "--block",
            "--seed",
            str(block[0]),
            "--histories",
            str(len(block)),
        ]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _add(self, total: Counter[str], block: Mapping[str, Any], began: float) -> None:
        for message in block["messages"]:
            print_now(f"BAD {message}\n  (PYTHONHASHSEED={block['hash_seed']})")
        total.update({name: number for name, number in block.items() if name not in {"first", "hash_seed", "messages"}})
        seconds, counted = time.monotonic() - began, total.copy()
        histories, bad = counted.pop("histories"), counted.pop("bad", 0)
        print_now(f"{histories} histories, {bad} wrong: {self.line(counted)}; {seconds:.0f} s")


C = TypeVar("C")


@dataclass
class Tally:
    """What the cases of a matrix came to: how they ended, and what was wrong."""

    name: str
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def line(self) -> str:
        ends = ", ".join(f"{number} {end}" for end, number in self.ends.most_common())
        return f"{self.name}: {self.ends.total()} cases, {len(self.wrong)} wrong; {ends}"


def play_all(
    name: str,
    cases: Iterable[C],
    play_one: Callable[[C], tuple[str, Sequence[str]]],
    print_line: Callable[[str], object] = print_now,
) -> Tally:
    """Play cases, each of which returns how it ended and what was wrong; print that, and totals as it goes."""
    tally, running = Tally(name), Running(print_line)
    for case in cases:
        ended, wrong = play_one(case)
        tally.ends[ended] += 1
        tally.wrong += [f"{case}: {one}" for one in wrong]
        for one in wrong:
            print_line(f"{case}: {one}")
        running.note(tally.line())
    print_line(tally.line())
    return tally
