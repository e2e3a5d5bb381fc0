"""Executions of many tasks on a simulated clock: each has a time of its own, and the earliest is run next."""

import heapq
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from delegation.orchestration.failures import Step
from tests.kit.worlds.service import World

_ENDED = frozenset({"succeeded", "failed", "stop", "due"})
PREPARE = timedelta(seconds=60)
RUN = timedelta(minutes=15)


def drive_together(world: World, *, one_worker: bool = False) -> int:
    """Run all dispatches to their ends, with `one_worker` one step at a time; return how many steps that took.

    A step takes the time by which it moves the clock, and the next step of its execution begins then. The clock of the
    world ends at the latest of these times.
    """
    numbers = count()
    waiting: list[tuple[datetime, int, dict[str, Any]]] = []
    steps, latest = 0, world.clock.now
    while world.queue.sent or waiting:
        while world.queue.sent:
            task_id, n = world.queue.sent.pop(0)
            if n:
                heapq.heappush(
                    waiting, (world.clock.now, next(numbers), {"task_id": task_id, "n": n, "next": "acquire"})
                )
        if not waiting:
            break
        begins, _, state = heapq.heappop(waiting)
        world.clock.now = max(begins, latest) if one_worker else begins
        state = _after(world, state)
        steps += 1
        latest = max(latest, world.clock.now)
        if state["next"] == "wait":
            again = max(world.clock.now, datetime.fromisoformat(state["wait_until"]))
            heapq.heappush(waiting, (again, next(numbers), {**state, "next": "acquire"}))
        elif state["next"] not in _ENDED:
            heapq.heappush(waiting, (world.clock.now, next(numbers), state))
    world.clock.now = latest
    return steps


def _after(world: World, state: dict[str, Any]) -> dict[str, Any]:
    step = Step.of(state)
    match state["next"]:
        case "acquire":
            return world.steps.acquire(step, world.clock() + PREPARE)
        case "prepare":
            return world.steps.prepare(step, world.clock() + PREPARE)
        case "inline":
            return world.steps.run_inline(step, world.clock() + RUN)
        case "complete":
            return world.steps.complete(step)
        case other:
            raise AssertionError(other)
