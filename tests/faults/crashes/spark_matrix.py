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
from typing import Any
from unittest import mock

from delegation.removal import spark as spark_jobs
from delegation.removal.errors import EngineFailed
from delegation.removal.purge import spark as spark_engine
from delegation.removal.purge.context import PurgeContext
from delegation.storage.memory import Killed
from polaris_common.errors import DelegationError
from tests.faults.crashes.scenarios import SCENARIOS, Point, Totals
from tests.faults.crashes.switch import DRIVER, EXECUTOR, Call, RemoteResources, StoreServer, Switch
from tests.faults.shared.running import Running
from tests.kit.lakes.lake import Lake
from tests.spark_sessions import spark_session


class Loss(Enum):
    """What is lost when an executor is killed, and the Spark master that makes it so."""

    JOB = "local[2]"
    WORKER = "local[2,4]"
    EXECUTOR = "local-cluster[2,1,1024]"


# With these values even small tables are read and planned by several tasks, and the driver polls during their deletes.
_ROWS_A_TASK, _POLL_SECONDS = 12, 0.25
_SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.executor.memory": "512m"}
# The number of these calls depends on the speed of the executors, so a recorded one may not be made.
_POLLS = frozenset({"plan list", "progress"})


@dataclass(frozen=True)
class SparkMatrix:
    """Runs kill points on one context."""

    spark: Any
    server: StoreServer
    lake: Lake
    loss: Loss

    def calls(self, name: str) -> list[Call]:
        """Return the calls of a scenario without a kill."""
        counted = Switch()
        self._purge(Point(self.lake, name, "counting"), counted)
        return counted.made

    def play(self, name: str, call: Call, *, after: bool, totals: Totals) -> None:
        """Kill one call, run the purge again, and count what is left."""
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
            totals.error(f"{where}: {found}" if switch.fired else f"{where}: the call was not made")
        try:
            self._purge(point, Switch())
        except DelegationError as error:
            totals.error(f"{where}: {error.code}: {error}")
        point.account(totals)

    def _purge(self, point: Point, switch: Switch) -> None:
        ctx = point.attempt(switch)
        with (
            mock.patch.object(spark_jobs, "_ROWS_PER_TASK", _ROWS_A_TASK),
            mock.patch.object(spark_jobs, "POLL_SECONDS", _POLL_SECONDS),
        ):
            spark_engine.purge_with_spark(self.spark, ctx, self._resources(ctx))

    def _resources(self, ctx: PurgeContext) -> RemoteResources:
        return self.server.resources(ctx, whole_executors=self.loss is Loss.EXECUTOR)


def play(
    lake: Lake, name: str, loss: Loss, *, step: int = 1, note: Callable[[Totals], object] = lambda _totals: None
) -> Totals:
    """Run every `step`th kill point of one scenario; the driver is killed only with Loss.JOB."""
    totals = Totals()
    with spark_session(loss.value, **_SETTINGS) as spark, StoreServer() as server:
        spark.sparkContext.setLogLevel("OFF")  # Spark logs pages for each killed worker
        matrix = SparkMatrix(spark.sparkContext, server, lake, loss)
        calls = [call for call in matrix.calls(name) if call.side == EXECUTOR or loss is Loss.JOB]
        for after in (False, True):
            for call in calls[step // 2 if after else 0 :: step]:
                matrix.play(name, call, after=after, totals=totals)
                note(totals)
    return totals


def play_all(lake: Lake, *, step: int, print_line: Callable[[str], object]) -> Totals:
    """Run all kill points of the first scenario, and every `step`th of the others and of lost executors."""
    totals = Totals()
    for number, name in enumerate(SCENARIOS):
        for loss in Loss:
            if number and loss is not Loss.JOB and step > 1:
                continue
            running, of = Running(print_line), f"spark, {name}, {loss.name.lower()} lost"
            played = play(
                lake,
                name,
                loss,
                step=step if number or loss is Loss.EXECUTOR else 1,
                note=lambda so_far, to=running.note, of=of: to(so_far.line(f"{of}, so far")),
            )
            running.end()
            print_line(played.line(of))
            totals.add(played)
    return totals
