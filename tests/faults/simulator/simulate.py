"""Run the simulator: `python -m tests.faults.simulator.simulate --seeds 1000 [--mutation NAME] [--replay SEED]`.

With `--store persistence` the tasks are in the NoSQL persistence, every change a commit.

Exit 0 when no seed violates an invariant, 1 at the first seed that does. With a mutation: 0 and the last line `caught
at seed N`, 1 when no seed detects it, 2 for an unknown mutation.
"""

import argparse
import contextlib
import logging
import multiprocessing
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from delegation.orchestration import steps
from delegation.orchestration.failures import StateFailure
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life import outcomes, transitions
from delegation.tasks.life.model import HELD, Task
from tests.faults.simulator.deployment import DRIFT, END, MAX_STEPS, Deployment, Mutation
from tests.faults.simulator.ledger import Violation
from tests.faults.simulator.scheduler import START, Simulation
from tests.faults.simulator.stores import STORES, TABLE, WITHOUT_NONCES

DEFAULT_SEEDS = 500


class JobsIgnored:
    """Cancels no job of a lost attempt."""

    def end(self, task: Task) -> bool:
        return True


def held_by_anyone(task: Task, attempt: int) -> Task:
    """The check of the fencing token without the token: any lease holder passes."""
    if task.status not in HELD:
        raise LeaseLost(task.task_id, attempt=attempt, current=task.attempt_count, status=task.status)
    return task


@contextlib.contextmanager
def without_fencing() -> Iterator[Mutation]:
    fence = transitions.held_by
    transitions.held_by = held_by_anyone
    try:
        yield Mutation()
    finally:
        transitions.held_by = fence


@contextlib.contextmanager
def short_executions() -> Iterator[None]:
    """Make long runs continue in a new execution after 4 heartbeats instead of 1,500."""
    turns = steps.MAX_TURNS
    steps.MAX_TURNS = 4
    try:
        yield
    finally:
        steps.MAX_TURNS = turns


@contextlib.contextmanager
def freed_at_once() -> Iterator[Mutation]:
    """End an attempt although its invocation may still work, because only its answer was lost."""
    held = StateFailure.may_still_work
    StateFailure.may_still_work = property(lambda _failure: False)  # type: ignore[assignment]
    try:
        yield Mutation()
    finally:
        StateFailure.may_still_work = held  # type: ignore[method-assign]


@contextlib.contextmanager
def run_twice() -> Iterator[Mutation]:
    """Retry work of which nothing shows that it did not run."""
    may_not = outcomes._may_not_run_again
    outcomes._may_not_run_again = lambda *_arguments: False
    try:
        yield Mutation()
    finally:
        outcomes._may_not_run_again = may_not


MUTATIONS: dict[str, Callable[[], contextlib.AbstractContextManager[Mutation]]] = {
    "none": lambda: contextlib.nullcontext(Mutation()),
    "drift": lambda: contextlib.nullcontext(Mutation(drift_margin=timedelta(0))),
    "nonce": lambda: contextlib.nullcontext(Mutation(stores=WITHOUT_NONCES)),
    "fencing": without_fencing,
    "answers": freed_at_once,
    "once": run_twice,
    "jobs": lambda: contextlib.nullcontext(Mutation(external_jobs=lambda _jobs: JobsIgnored())),
}


@dataclass(frozen=True)
class Run:
    """The result of one seed; equal runs have equal digests."""

    seed: int
    steps: int
    digest: str
    violation: str | None
    arrows: frozenset[tuple[str, str]]
    errors: frozenset[str]
    happened: frozenset[str]
    log: tuple[str, ...] = ()


def run(seed: int, mutation: str = "none", store: str = TABLE, *, keep_log: bool = False) -> Run:
    """Run one seed to its end or to its first violation."""
    with MUTATIONS[mutation]() as changed, short_executions():
        world = Simulation(seed, DRIFT)
        world.log = [] if keep_log else None
        deployment = Deployment(world, changed, store)
        violation = None
        try:
            deployment.start()
            while not deployment.is_quiet() and world.now - START < END and world.steps < MAX_STEPS:
                world.step()
            deployment.ledger.check_end()
        except Violation as found:
            violation = str(found)
        finally:
            deployment.closing = True
            world.close()
        lives = [*deployment.ledger.lives, *deployment.ledger.rows.values()]
        arrows = {(one.status.value, other.status.value) for rows in lives for one, other in pairwise(rows)}
        errors = {row.error_code for rows in lives for row in rows if row.error_code}
        log = tuple(world.log or ())
        happened = frozenset(deployment.ledger.happened)
        return Run(seed, world.steps, world.digest, violation, frozenset(arrows), frozenset(errors), happened, log)


def _run_one(job: tuple[int, str, str]) -> Run:
    try:
        return run(*job)
    except Exception as error:
        error.add_note(f"replay with: python -m tests.faults.simulator.simulate --store {job[2]} --replay {job[0]}")
        raise


def run_seeds(seeds: Iterable[int], mutation: str, processes: int, store: str = TABLE) -> Generator[Run, None, None]:
    """Run seeds in their order, in several processes; with 1 in this one, which few seeds take less time in."""
    if processes == 1:
        yield from (run(seed, mutation, store) for seed in seeds)
        return
    quiet = (logging.WARNING,)  # without the many warnings under faults
    with multiprocessing.get_context("spawn").Pool(processes, logging.disable, quiet) as pool:
        yield from pool.imap(_run_one, ((seed, mutation, store) for seed in seeds), chunksize=4)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="simulate", description="Simulate the task system under faults.")
    parser.add_argument("--seeds", type=int, default=DEFAULT_SEEDS)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--mutation", default="none")
    parser.add_argument("--store", choices=sorted(STORES), default=TABLE, help="where the tasks are")
    parser.add_argument("--replay", type=int, help="run one seed and print its steps")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.mutation not in MUTATIONS:
        known = ", ".join(name for name in sorted(MUTATIONS) if name != "none")
        sys.stdout.write(f"unknown mutation {options.mutation}; choose one of {known}\n")
        return 2
    if options.replay is not None:
        replayed = run(options.replay, options.mutation, options.store, keep_log=True)
        sys.stdout.write("\n".join((*replayed.log, replayed.violation or "no violation")) + "\n")
        return 1 if replayed.violation else 0
    mutated = options.mutation != "none"
    seeds = range(options.first, options.first + options.seeds)
    for done in run_seeds(seeds, options.mutation, options.processes, options.store):
        if done.violation is None:
            continue
        sys.stdout.write(f"seed {done.seed}, step {done.steps}: {done.violation}\n")
        if mutated:
            sys.stdout.write(f"caught at seed {done.seed}\n")
            return 0
        store = "" if options.store == TABLE else f"--store {options.store} "
        sys.stdout.write(f"replay with: python -m tests.faults.simulator.simulate {store}--replay {done.seed}\n")
        return 1
    sys.stdout.write(
        f"{options.mutation} survived {len(seeds)} seeds\n" if mutated else f"{len(seeds)} seeds, 0 violations\n"
    )
    return 1 if mutated else 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(main(sys.argv[1:]))
