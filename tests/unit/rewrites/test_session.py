"""A Spark session as a process sees it: its signals, its end, and a JVM that is gone. No JVM is started."""

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from delegation.identifiers import TableIdentifier
from delegation.rewrites import spark
from delegation.rewrites.commits import CommitRules
from delegation.rewrites.context import DataFilesRewrite
from delegation.rewrites.errors import RewriteEngineFailed
from delegation.rewrites.fence import Fence, Gate
from delegation.rewrites.spark import SparkRewriter, is_alive, rewriting_session
from delegation.tasks.errors import StoreUnavailable


def _by_spark(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _gone() -> Exception:
    return Py4JNetworkError("Answer from Java side is empty")


class Builder:
    """SparkSession.builder, whose session takes the signal of Ctrl-C as pyspark's does."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def appName(self, _name: str) -> "Builder":
        return self

    def config(self, _name: str, _value: str) -> "Builder":
        return self

    def getOrCreate(self) -> Any:
        signal.signal(signal.SIGINT, _by_spark)
        return self.session


@pytest.fixture
def _same_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_same_signals")
def test_a_session_leaves_ctrl_c_to_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_worker(_number: int, _frame: object) -> None: ...

    signal.signal(signal.SIGINT, by_worker)
    monkeypatch.setattr(SparkSession, "builder", Builder(SimpleNamespace(stop=lambda: None)))
    with rewriting_session():
        assert signal.getsignal(signal.SIGINT) is by_worker


@pytest.mark.usefixtures("_same_signals")
@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionRefusedError("gone")])
def test_the_end_of_a_session_whose_jvm_is_gone_hides_no_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def stop() -> None:
        raise error

    monkeypatch.setattr(SparkSession, "builder", Builder(SimpleNamespace(stop=stop)))
    with pytest.raises(RewriteEngineFailed, match="the JVM ended"), rewriting_session():
        raise RewriteEngineFailed("the JVM ended")


class DeadContext:
    """The context of a session whose JVM ends while an attempt's progress is read."""

    def __init__(self) -> None:
        self._read = threading.Event()
        self._jsc = SimpleNamespace(sc=self._sc)

    def _sc(self) -> Any:
        self._read.set()
        raise _gone()

    def addJobTag(self, _tag: str) -> None:
        assert self._read.wait(30)
        raise _gone()

    def cancelJobsWithTag(self, _tag: str) -> None:
        raise _gone()


class LiveContext:
    """The context of a session that works."""

    _jsc = _jvm = MagicMock()

    def addJobTag(self, _tag: str) -> None: ...

    def setLocalProperty(self, _name: str, _value: str) -> None: ...


class Attempt:
    task_id = "task"
    attempt = 1

    def checkpoint(self, *, moved: bool = True) -> None: ...

    def report(self, **_fields: Any) -> None: ...


def gate() -> Gate:
    no_requests: Any = None
    rules = CommitRules("uuid", "main", "task", 1)
    return Gate(TableIdentifier("lake", ("sales",), "orders"), rules, no_requests, lambda: None)


def test_a_report_that_the_store_refuses_is_what_ends_the_action(monkeypatch: pytest.MonkeyPatch) -> None:
    def perform(*_arguments: object) -> None:
        raise StoreUnavailable("the table does not answer")

    monkeypatch.setattr(spark, "InheritableThread", threading.Thread)
    monkeypatch.setattr(spark, "_perform", perform)
    session: Any = SimpleNamespace(sparkContext=LiveContext(), _jsparkSession=None)
    with Fence() as fence, pytest.raises(StoreUnavailable):
        SparkRewriter(session, fence, poll_seconds=0.01).perform(gate(), DataFilesRewrite(), Attempt())


def test_a_jvm_that_ends_during_an_action_is_the_engines_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "InheritableThread", threading.Thread)
    session: Any = SimpleNamespace(sparkContext=DeadContext())
    with Fence() as fence, pytest.raises(RewriteEngineFailed, match="its JVM ended"):
        SparkRewriter(session, fence, poll_seconds=0.01).perform(gate(), DataFilesRewrite(), Attempt())
    assert not is_alive(session)
