"""The crash matrix of the Spark engine, with real local Spark and executors as separate processes.

If the killed call is the *driver's*, the attempt ends, its memory is lost, and no later call of it has an effect. Spark
cancels the tasks of a dead driver, but calls that they have sent may still have an effect during the next attempt. If
the call is an *executor's*, its Python worker exits at once and Spark finds a broken pipe. Without Spark's retries the
job fails, and the attempt ends with EngineFailed. With retries another worker repeats the task, and the attempt has to
succeed. It also has to succeed if a whole executor is killed, a JVM with its shuffle files, which Spark makes again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar
from unittest import mock

from delegation.removal import spark as spark_jobs
from delegation.removal.purge import spark as spark_engine
from tests.faults.crashes.kills import KilledRuns
from tests.faults.crashes.scenarios import SCENARIOS, Point
from tests.faults.crashes.switch import DRIVER, EXECUTOR, Call, StoreServer, Switch
from tests.kit.explorer import Tally
from tests.kit.lakes.lake import Lake
from tests.kit.printing import print_now
from tests.spark_sessions import spark_session


class Loss(Enum):
    """What is lost when an executor is killed, and the Spark master that makes it so."""

    JOB = "local[2]"
    WORKER = "local[2,4]"
    EXECUTOR = "local-cluster[2,1,1024]"


# With these values even small tables are read and planned by several tasks, and the driver polls during their deletes.
_ROWS_A_TASK, _POLL_SECONDS = 12, 0.25
_SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.executor.memory": "512m"}


@dataclass(frozen=True)
class SparkMatrix(KilledRuns[Point]):
    """Purges of one scenario with the executors of one context; the driver is killed only with Loss.JOB."""

    lake: Lake
    scenario: str
    loss: Loss

    ended: ClassVar[str] = "PURGED"

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"spark, {self.scenario}, {self.loss.name.lower()} lost"

    def begin(self) -> Point:
        return Point(self.lake, self.scenario)

    def run(self, story: Point, switch: Switch | None = None) -> Any:
        ctx = story.attempt(switch or Switch())
        with (
            mock.patch.object(spark_jobs, "_ROWS_PER_TASK", _ROWS_A_TASK),
            mock.patch.object(spark_jobs, "POLL_SECONDS", _POLL_SECONDS),
        ):
            resources = self.server.resources(ctx, whole_executors=self.loss is Loss.EXECUTOR)
            return spark_engine.purge_with_spark(self.spark, ctx, resources)

    def missing(self, story: Point) -> list[str]:
        return [f"{one} is gone" for one in story.harmed()]

    def wrong_at_end(self, story: Point) -> list[str]:
        return story.wrong_at_end()

    def left(self, story: Point) -> set[str]:
        return story.left()

    def ends_as(self, call: Call) -> str:
        return "ended well" if call.side != DRIVER and self.loss is not Loss.JOB else super().ends_as(call)

    def calls(self) -> list[Call]:
        return [call for call in super().calls() if call.side == EXECUTOR or self.loss is Loss.JOB]


def play(lake: Lake, name: str, loss: Loss, *, step: int = 1, print_line: Callable[[str], object] = print_now) -> Tally:
    """Run every `step`th kill point of one scenario."""
    with spark_session(loss.value, **_SETTINGS) as spark, StoreServer() as server:
        spark.sparkContext.setLogLevel("OFF")  # Spark logs pages for each killed worker
        return SparkMatrix(spark.sparkContext, server, lake, name, loss).play(step=step, print_line=print_line)


def play_scenarios(lake: Lake, *, step: int) -> list[Tally]:
    """Run all kill points of the first scenario, and every `step`th of the others and of lost executors."""
    return [
        play(lake, name, loss, step=step if number or loss is Loss.EXECUTOR else 1)
        for number, name in enumerate(SCENARIOS)
        for loss in Loss
        if not number or loss is Loss.JOB or step == 1
    ]
