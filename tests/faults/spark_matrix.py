"""The crash matrix of the Spark engine: real local Spark, whose executors are processes of their own.

What dies depends on who makes the call. The *driver*: the attempt ends there, what it had in memory is lost, and no
later call of it takes effect. Spark cancels the tasks of a driver that is gone; what they have on its way may still
take effect while the next attempt runs. An *executor*: its Python worker exits on the spot, which Spark learns from the
broken pipe. With Spark's retries off (`local[2]`) the job fails, and the attempt with it, as EngineFailed; with retries
on (`local[2,4]`) another worker repeats the task, and the attempt has to end well by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

from delegation.errors import DelegationError
from delegation.purge import spark_engine
from delegation.purge.errors import EngineFailed
from delegation.purge.memory import Killed
from tests.faults.crash_scenarios import SCENARIOS, Point, Totals
from tests.faults.switch import DRIVER, EXECUTOR, Call, StoreServer, Switch
from tests.spark_sessions import spark_session
from tests.unit.purge.lake import Lake

RETRIES_OFF, RETRIES_ON = "local[2]", "local[2,4]"
# So that even these tables are read and planned by several tasks, and the driver asks while they delete.
_ROWS_A_TASK, _POLL_SECONDS = 12, 0.25
# How often the driver asks depends on how fast the executors are: of these there may be fewer than counted.
_POLLS = frozenset({"plan list", "progress"})


@dataclass(frozen=True)
class SparkMatrix:
    """Plays points on one session."""

    spark: Any
    server: StoreServer
    lake: Lake

    def calls(self, name: str) -> list[Call]:
        """The calls of a scenario in which nothing goes wrong."""
        counted = Switch()
        self._purge(Point(self.lake, name, "counting"), counted)
        return counted.made

    def play(self, name: str, call: Call, *, after: bool, retries: bool, totals: Totals) -> None:
        """Kill one call, run again, and book what is there then."""
        where = f"spark, {name}, {'after' if after else 'before'} {call}"
        point, switch = Point(self.lake, name, where), Switch(call, after=after)
        expected = "ended well"
        if call.side == DRIVER:
            expected = "killed"
        elif not retries:
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
            mock.patch.object(spark_engine, "POLL_SECONDS", _POLL_SECONDS),
        ):
            spark_engine.purge_with_spark(self.spark, ctx, self.server.workplace(ctx))


def play(lake: Lake, name: str, *, retries: bool, step: int = 1) -> Totals:
    """Every `step`th point of one scenario; with retries on only those at which executors die."""
    totals = Totals()
    master = RETRIES_ON if retries else RETRIES_OFF
    with spark_session(master, **{"spark.ui.showConsoleProgress": "false"}) as spark, StoreServer() as server:
        spark.sparkContext.setLogLevel("OFF")  # of each killed worker Spark has pages to tell
        matrix = SparkMatrix(spark, server, lake)
        calls = [call for call in matrix.calls(name) if call.side == EXECUTOR or not retries]
        for after in (False, True):
            for call in calls[step // 2 if after else 0 :: step]:
                matrix.play(name, call, after=after, retries=retries, totals=totals)
    return totals


def play_all(lake: Lake, *, step: int, say: Callable[[str], object]) -> Totals:
    """The first scenario whole, with retries and without, the others as `step` says."""
    totals = Totals()
    for number, name in enumerate(SCENARIOS):
        for retries in (False, True):
            if retries and number and step > 1:
                continue
            played = play(lake, name, retries=retries, step=step if number else 1)
            say(f"spark, {name}, retries {'on' if retries else 'off'}: {played.points} points\n")
            totals.add(played)
    return totals
