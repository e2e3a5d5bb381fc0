"""What goes wrong in a run, and when: a pure function of the seed and the minutes."""

import random
from dataclasses import dataclass
from enum import StrEnum

FUNCTIONS = (
    "api",
    "authorizer",
    "dispatcher",
    "sweeper",
    "acquire",
    "prepare",
    "run_inline",
    "start_job",
    "heartbeat",
    "complete",
)
"""The functions whose processes are killed; the others run only in deployments that send notifications."""
WORKER, JOB, EXECUTION, CONNECTIONS = "worker", "Spark job", "execution", "connections"
PARTS = (*FUNCTIONS, WORKER, JOB, EXECUTION, CONNECTIONS)
"""All that a run kills: functions, plain workers, Spark jobs, executions, and callers' connections to the front."""
SECONDS_BETWEEN_KILLS = 3.0
LONGEST_OUTAGE_SECONDS = 120.0
SHORTEST_PAUSE_SECONDS = 26.0
"""Longer than the 20 s after which every process has read that it is paused (tasks/pauses.py)."""


class Kind(StrEnum):
    """What a fault is."""

    KILL = "kill"
    THROTTLE_S3 = "throttle S3"
    THROTTLE_DYNAMODB = "throttle DynamoDB"
    POLARIS_DOWN = "Polaris is down"
    PAUSE = "pause"
    DEPLOY = "deploy"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A fault `at` seconds after the beginning, for `seconds` (0 for one without a duration).

    `part` is what is killed, `dice` in [0, 1) chooses among several processes of it; `share` of the calls is throttled.
    """

    at: float
    kind: Kind
    seconds: float = 0.0
    part: str = ""
    dice: float = 0.0
    share: float = 0.0

    @property
    def until(self) -> float:
        return self.at + self.seconds


def planned(seed: int, minutes: float) -> tuple[Fault, ...]:
    """Return the faults of a run of that length in the order of their times; all of them end within it."""
    dice = random.Random(f"faults {seed} {minutes:g}")
    run = minutes * 60
    return tuple(sorted((*_kills(dice, run), *_throttles(dice, run), *_events(dice, run))))


def _kills(dice: random.Random, run: float) -> list[Fault]:
    """Return kills at random times; each part has its turn before any has another."""
    kills: list[Fault] = []
    order: list[str] = []
    at = dice.expovariate(1 / SECONDS_BETWEEN_KILLS)
    while at < run * 0.95:
        if not order:
            order = dice.sample(PARTS, len(PARTS))
        kills.append(Fault(at, Kind.KILL, part=order.pop(), dice=dice.random()))
        at += dice.expovariate(1 / SECONDS_BETWEEN_KILLS)
    return kills


def _throttles(dice: random.Random, run: float) -> list[Fault]:
    """Return one window for each service in each sixth of the run, at least two of each."""
    windows = max(2, int(run // 60))
    faults = []
    for kind, shares in ((Kind.THROTTLE_S3, (0.2, 0.7)), (Kind.THROTTLE_DYNAMODB, (0.1, 0.4))):
        for window in range(windows):
            span = run * 0.95 / windows
            seconds = span * dice.uniform(0.1, 0.3)
            at = span * window + dice.uniform(0, span - seconds)
            faults.append(Fault(at, kind, seconds=seconds, share=dice.uniform(*shares)))
    return faults


def _events(dice: random.Random, run: float) -> list[Fault]:
    """Return the outage, the deployment and the pause, one after the other in a random order."""
    pause = min(max(SHORTEST_PAUSE_SECONDS, run * 0.05), run / 4)
    outage = LONGEST_OUTAGE_SECONDS * min(1.0, run / (30 * 60))
    events = [(Kind.POLARIS_DOWN, outage), (Kind.DEPLOY, 0.0), (Kind.PAUSE, pause)]
    dice.shuffle(events)
    third = run * 0.8 / len(events)
    return [
        Fault(run * 0.1 + third * place + dice.uniform(0, third - seconds), kind, seconds=seconds)
        for place, (kind, seconds) in enumerate(events)
    ]
