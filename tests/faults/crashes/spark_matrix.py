"""The crash matrix of the Spark engine: real local Spark, whose executors are processes of their own.

What dies depends on who makes the call. The *driver*: the attempt ends there, what it had in memory is lost, and no
later call of it takes effect. Spark cancels the tasks of a driver that is gone; what they have on its way may still
take effect while the next attempt runs. An *executor*: its Python worker exits on the spot, which Spark learns from the
broken pipe. With Spark's retries off the job fails, and the attempt with it, as EngineFailed; with retries on another
worker repeats the task, and the attempt has to end well by itself. So it has where the whole executor is killed, a JVM
of its own with the shuffle files it holds: what others have yet to read of them is made again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any
from unittest import mock

from delegation.errors import DelegationError
from delegation.operations.purge import spark as spark_engine
from delegation.operations.purge.context import PurgeContext
from delegation.storage.memory import Killed
from delegation.worksets.engines import spark as spark_jobs
from delegation.worksets.errors import EngineFailed
from tests.faults.crashes.scenarios import SCENARIOS, Point, Totals
from tests.faults.crashes.switch import DRIVER, EXECUTOR, Call, RemoteWorkplace, StoreServer, Switch
from tests.spark_sessions import spark_session
from tests.unit.operations.purge.lake import Lake


class Loss(Enum):
    """What is lost when an executor makes its last call, and the master that makes it so."""

    JOB = "local[2]"
    WORKER = "local[2,4]"
    EXECUTOR = "local-cluster[2,1,1024]"


# So that even these tables are read and planned by several tasks, and the driver asks while they delete.
_ROWS_A_TASK, _POLL_SECONDS = 12, 0.25
_SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.executor.memory": "512m"}
# How often the driver asks depends on how fast the executors are: of these there may be fewer than counted.
_POLLS = frozenset({"plan list", "progress"})


@dataclass(frozen=True)
class SparkMatrix:
    """Plays points on one session."""

    spark: Any
    server: StoreServer
    lake: Lake
    loss: Loss

    def calls(self, name: str) -> list[Call]:
        """The calls of a scenario in which nothing goes wrong."""
        counted = Switch()
        self._purge(Point(self.lake, name, "counting"), counted)
        return counted.made

    def play(self, name: str, call: Call, *, after: bool, totals: Totals) -> None:
        """Kill one call, run again, and book what is there then."""
        where = f"spark, {name}, {'after' if after else 'before'} {call}"
        point, switch = Point(self.lake, name, where), Switch(call, after=after)
        expected = "ended well"
        if call.side == DRIVER:
            expected = "killed"
        elif self.loss is Loss.JOB:
            expected = "failed"
        found = "ended well"
        try:
            self._purge(point, switch)
        except Killed:
            found = "killed"
        except EngineFailed:
            found = "failed"
        except DelegationError as error:
            found = f"raised {error.code}: {error}"
        if not switch.fired and call.name in _POLLS:
            return
        if not switch.fired or found != expected:
            totals.error(f"{where}: {found}" if switch.fired else f"{where}: was not made")
        try:
            self._purge(point, Switch())
        except DelegationError as error:
            totals.error(f"{where}: {error.code}: {error}")
        point.account(totals)

    def _purge(self, point: Point, switch: Switch) -> None:
        ctx = point.attempt(switch)
        with (
            mock.patch.object(spark_engine, "_WORTH_A_TASK", _ROWS_A_TASK),
            mock.patch.object(spark_jobs, "POLL_SECONDS", _POLL_SECONDS),
        ):
            spark_engine.purge_with_spark(self.spark, ctx, self._workplace(ctx))

    def _workplace(self, ctx: PurgeContext) -> RemoteWorkplace:
        return self.server.workplace(ctx, whole_executors=self.loss is Loss.EXECUTOR)


def play(lake: Lake, name: str, loss: Loss, *, step: int = 1) -> Totals:
    """Every `step`th point of one scenario; those at which the driver dies only beside a lost job."""
    totals = Totals()
    with spark_session(loss.value, **_SETTINGS) as spark, StoreServer() as server:
        spark.sparkContext.setLogLevel("OFF")  # of each killed worker Spark has pages to tell
        matrix = SparkMatrix(spark, server, lake, loss)
        calls = [call for call in matrix.calls(name) if call.side == EXECUTOR or loss is Loss.JOB]
        for after in (False, True):
            for call in calls[step // 2 if after else 0 :: step]:
                matrix.play(name, call, after=after, totals=totals)
    return totals


def play_all(lake: Lake, *, step: int, say: Callable[[str], object]) -> Totals:
    """The first scenario whole, the others and lost executors, which are costly, as `step` says."""
    totals = Totals()
    for number, name in enumerate(SCENARIOS):
        for loss in Loss:
            if number and loss is not Loss.JOB and step > 1:
                continue
            played = play(lake, name, loss, step=step if number or loss is Loss.EXECUTOR else 1)
            say(f"spark, {name}, {loss.name.lower()} lost: {played.points} points\n")
            totals.add(played)
    return totals
