"""Random histories of tables that borrow each other's files (`make histories`); prints totals as they go.

Exits with 1 if a file that a live table needs was deleted, or one is left that a purge was to delete. The steps of such
a history are printed, and `--seed` with `--histories 1` plays it again. With `--mutation` a safeguard is left out: it
exits with 0 at the first history that notices, with 1 if none does, with 2 for an unknown mutation.
"""

import argparse
import logging
import multiprocessing
import sys
import time
from collections.abc import Generator, Sequence

from tests.faults.histories.history import History, Verdict
from tests.faults.histories.mutations import MUTATIONS

_EVERY = 100


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first history")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--mutation", default="none", help=f"one of {', '.join(MUTATIONS)}")
    chosen = parser.parse_args(arguments)
    if chosen.mutation not in MUTATIONS:
        sys.stdout.write(f"unknown mutation {chosen.mutation}; choose one of {', '.join(MUTATIONS)}\n")
        return 2
    if chosen.mutation != "none":
        caught = first_bad(chosen.mutation, range(chosen.seed, chosen.seed + chosen.histories))
        sys.stdout.write("not caught\n" if caught is None else f"caught at seed {caught}\n")
        return 1 if caught is None else 0
    began = time.monotonic()
    bad = purges = succeeded = harmed = left = not_covered = unlisted = needless = 0
    seeds = range(chosen.seed, chosen.seed + chosen.histories)
    for number, verdict in enumerate(_played(seeds, chosen.processes)):
        purges += verdict.purges
        succeeded += verdict.succeeded
        harmed += len(verdict.harmed)
        left += len(verdict.left)
        not_covered += verdict.not_covered
        unlisted += verdict.unlisted
        needless += verdict.needless
        if not verdict.is_good:
            bad += 1
            _show(verdict)
        if (number + 1) % _EVERY == 0 or number + 1 == chosen.histories:
            sys.stdout.write(
                f"{number + 1} histories, {purges} purges of which {succeeded} succeeded: {harmed} files wrongly "
                f"deleted, {left} wrongly left, {not_covered} left as NOT_COVERED; {unlisted} unlisted tables found, "
                f"{needless} where there is none; {time.monotonic() - began:.0f} s\n"
            )
            sys.stdout.flush()
    return 1 if bad else 0


def _played(seeds: Sequence[int], processes: int) -> Generator[Verdict, None, None]:
    quiet = (logging.WARNING,)  # held purges warn, and many are held here
    with multiprocessing.get_context("spawn").Pool(processes, logging.disable, quiet) as pool:
        yield from pool.imap(_play, seeds, chunksize=4)


def _play(seed: int) -> Verdict:
    return History(seed).play()


def first_bad(mutation: str, seeds: Sequence[int]) -> int | None:
    """Return the first of these seeds whose history goes wrong without a safeguard, None if all go well."""
    with MUTATIONS[mutation]():
        return next((seed for seed in seeds if not History(seed).play().is_good), None)


def _show(verdict: Verdict) -> None:
    lines = [f"seed {verdict.seed}:", *verdict.steps, *(f"harmed: {one}" for one in verdict.harmed)]
    sys.stdout.write("\n  ".join([*lines, *(f"left: {one}" for one in verdict.left)]) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
