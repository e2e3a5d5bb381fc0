"""Iceberg's own actions in one Spark session, for attempts at several tables at a time.

Each attempt has a catalog of its own in the JVM, at the address of its gate in the fence. An action runs in a thread
with a job tag, by which its jobs are cancelled when the attempt must stop. Only this module imports pyspark.
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delegation.rewrites.context import (
    CHANGED_FIRST,
    DataFilesRewrite,
    ManifestsRewrite,
    Performed,
    PutOff,
    Rewrite,
    RewriteAttempt,
)
from delegation.rewrites.errors import RewriteEngineFailed, RewriteError, branch_not_found, rewrite_refused
from delegation.rewrites.fence import LOOPBACK, Fence, Gate, Sent
from delegation.rewrites.terms import MAIN
from polaris_common.errors import DelegationError, printable

POLL_SECONDS: Final = 1.0
_CANCEL_SECONDS: Final = 0.1
_ENABLED: Final = "partial-progress.enabled"
_MOST_COMMITS: Final = "partial-progress.max-commits"
_COMMITS: Final = 10
"""Iceberg's default number of commits of one action. Each is a snapshot of the table."""
_CONFLICTS: Final = frozenset({"CommitFailedException", "ValidationException"})
_WRONG: Final = frozenset(
    {
        "AnalysisException",
        "IcebergParseException",
        "IllegalArgumentException",
        "ParseException",
        "UnsupportedOperationException",
        "ValidationException",
    }
)
"""Errors before an action starts: a name in the request does not fit the table."""
_LONGEST_REASON: Final = 300
_LOAD_RETRIES: Final = "2"
"""Iceberg 1.12 repeats a load after a 500, by default for 31 s, and an ending attempt waits for that. The fence's own
client repeats it too."""
T = TypeVar("T")


@contextmanager
def rewriting_session(**settings: str) -> Iterator[SparkSession]:
    """Give a session with Iceberg's parser until the end of the block. Its attempts share executors fairly."""
    fixed = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.scheduler.mode": "FAIR",
        "spark.speculation": "false",
        # Otherwise `${env:NAME}` in a filter would be replaced, and an error would show the value.
        "spark.sql.variable.substitute": "false",
    }
    builder = SparkSession.builder.appName("delegation-rewrites")
    for name, value in {**fixed, **settings}.items():
        builder = builder.config(name, value)
    by_process = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if by_process is not None and threading.current_thread() is threading.main_thread():
        # pyspark's own handler would cancel the jobs of all attempts, which would then fail.
        signal.signal(signal.SIGINT, by_process)
    try:
        yield session
    finally:
        with suppress(Py4JError, OSError):  # the JVM has ended; the reason is already raised
            session.stop()


@dataclass(frozen=True)
class SparkRewriter:
    """RewriteEngine with the executors of one session. Thread-safe."""

    session: SparkSession
    fence: Fence
    poll_seconds: float = POLL_SECONDS

    @property
    def iceberg_version(self) -> str:
        """Return the version of the loaded Iceberg runtime."""
        try:
            return str(jvm_of(self.session).org.apache.iceberg.IcebergBuild.version())
        except (Py4JNetworkError, OSError) as error:
            raise _engine_error(error) from error
        except (Py4JError, TypeError) as error:
            raise RewriteEngineFailed("Spark has no Iceberg runtime", retryable=False) from error

    def perform(self, gate: Gate, rewrite: Rewrite, attempt: RewriteAttempt) -> Performed:
        with self.fence.opened(gate) as uri:
            return self._watched(gate, attempt, lambda: _perform(self.session, gate, uri, rewrite, attempt))

    def _watched(self, gate: Gate, attempt: RewriteAttempt, work: Callable[[], T]) -> T:
        """Do the work in a thread. Cancels its jobs when the attempt or its gate must stop, and raises the reason."""
        context, tag = self.session.sparkContext, f"rewrite-{attempt.task_id}-{attempt.attempt}"
        done = _Done[T]()

        def run() -> None:
            try:
                context.addJobTag(tag)
                context.setLocalProperty("spark.scheduler.pool", tag)
                jvm_of(self.session).org.apache.spark.sql.SparkSession.setActiveSession(self.session._jsparkSession)
                done.results.append(work())
            except (PySparkException, Py4JError, OSError, DelegationError) as error:
                done.error = error

        try:
            thread = InheritableThread(target=run, name=tag)
        except (Py4JError, OSError) as error:  # it asks the JVM
            raise _engine_error(error) from error
        thread.start()
        seen = (0, 0)
        try:
            while thread.is_alive():
                thread.join(self.poll_seconds)
                now = (self._tasks_ended(tag), len(gate.commits))
                attempt.checkpoint(moved=now != seen)
                seen = now
                if gate.stopped is not None:
                    raise gate.stopped
        finally:
            while thread.is_alive():
                # Groups that have not started would start new jobs.
                with suppress(Py4JError, OSError):  # the thread gets the same error, and ends
                    context.cancelJobsWithTag(tag)
                thread.join(_CANCEL_SECONDS)
        if gate.stopped is not None:
            raise gate.stopped
        if done.error is not None:
            raise done.error if isinstance(done.error, DelegationError) else _engine_error(done.error)
        return done.results[0]

    def _tasks_ended(self, tag: str) -> int:
        """Return the number of completed Spark tasks of the tag's jobs."""
        try:
            tracker = self.session.sparkContext._jsc.sc().statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(tag)]
            stages = [stage for job in jobs if job.isDefined() for stage in job.get().stageIds()]
            infos = [tracker.getStageInfo(stage) for stage in stages]
            return sum(stage.get().numCompletedTasks() for stage in infos if stage.isDefined())
        except (Py4JError, OSError):
            return 0  # the thread of the work gets the same error


def is_alive(session: SparkSession) -> bool:
    """Return whether a session's JVM answers and its Spark context is running."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False


def reached_at(session: SparkSession) -> str:
    """Return where executors reach this process: they renew the table's credentials through the fence."""
    context = session.sparkContext
    is_here = str(context.master).startswith("local")
    return LOOPBACK if is_here else str(context.getConf().get("spark.driver.host", LOOPBACK))


@dataclass(slots=True)
class _Done(Generic[T]):
    results: list[T] = field(default_factory=list)
    error: Exception | None = None


def jvm_of(session: SparkSession) -> Any:
    """Return the session's JVM, which has Iceberg's classes."""
    return session.sparkContext._jvm


def _perform(session: SparkSession, gate: Gate, uri: str, rewrite: Rewrite, attempt: RewriteAttempt) -> Performed:
    jvm = jvm_of(session)
    catalog = jvm.org.apache.iceberg.rest.RESTCatalog()
    catalog.setConf(session.sparkContext._jsc.hadoopConfiguration())
    # The server vends the rest with the table's metadata.
    properties = {
        "uri": uri,
        "warehouse": gate.identifier.catalog,
        "rest-metrics-reporting-enabled": "false",
        "rest.client.max-retries": _LOAD_RETRIES,
    }
    catalog.initialize(gate.identifier.catalog, properties)
    try:
        names = jvm.org.apache.iceberg.catalog.Namespace.of(_array(session, gate.identifier.namespace))
        table = catalog.loadTable(jvm.org.apache.iceberg.catalog.TableIdentifier.of(names, gate.identifier.name))
        if isinstance(rewrite, ManifestsRewrite):
            return _rewrite_manifests(session, table, rewrite)
        return _rewrite_data_files(session, table, rewrite, gate, attempt)
    finally:
        catalog.close()


def _rewrite_data_files(
    session: SparkSession, table: Any, rewrite: DataFilesRewrite, gate: Gate, attempt: RewriteAttempt
) -> Performed:
    snapshot = table.snapshot(rewrite.branch)
    if snapshot is None:
        if rewrite.branch == MAIN:
            return Performed()
        raise branch_not_found(rewrite.branch)
    try:
        filtered = _filter(session, table, rewrite)
        groups = _groups(session, table, filtered, snapshot.snapshotId(), rewrite.options)
        action = _strategy(session, _actions(session).rewriteDataFiles(table), table, rewrite).filter(filtered)
    except (PySparkException, Py4JJavaError) as error:
        raise _refusal(error) or error from error
    if not groups:
        return Performed()
    attempt.report(done=0, total=groups, unit="file groups")
    options = {_ENABLED: "true", _MOST_COMMITS: str(min(groups, _COMMITS)), **rewrite.options}
    result = action.options(options).toBranch(rewrite.branch).execute()
    done, failed = result.rewriteResults().size(), result.rewriteFailures().size()
    attempt.report(done=done, total=groups, unit="file groups")
    put_off = list(_put_off(gate, groups - done - failed, failed))
    if rewrite.branch == MAIN:
        put_off += _remove_dangling_deletes(session, table)
    return Performed(groups=groups, groups_done=done, put_off=tuple(put_off))


def _put_off(gate: Gate, uncommitted: int, failed: int) -> Iterator[PutOff]:
    """Yield why groups were put off. Groups whose commit Iceberg itself gave up conflict with another writer."""
    if failed > 0:
        yield PutOff(groups=failed, reason="their files could not be written; see the driver's log", is_conflict=False)
    if uncommitted > 0:
        unknown = sum(commit.became is Sent.UNKNOWN for commit in gate.commits)
        reason = "it is unknown whether the catalog applied their commit" if unknown else CHANGED_FIRST
        yield PutOff(groups=uncommitted, reason=reason, is_conflict=not unknown)


def _remove_dangling_deletes(session: SparkSession, table: Any) -> Iterator[PutOff]:
    """Remove deletes that no data file needs any more. For unpartitioned tables Iceberg does so itself."""
    table.refresh()
    deletes = table.currentSnapshot().summary().get("total-delete-files")
    if deletes is not None and int(deletes) > 0:
        try:
            _actions(session).removeDanglingDeleteFiles(table).execute()
        except Py4JJavaError as error:
            yield _conflict(error, "deletes that no data file needs stay")


def _rewrite_manifests(session: SparkSession, table: Any, rewrite: ManifestsRewrite) -> Performed:
    if table.currentSnapshot() is None:
        return Performed()
    action = _actions(session).rewriteManifests(table)
    if rewrite.spec_id is not None:
        action = action.specId(rewrite.spec_id)
    if rewrite.sort_by:
        action = action.sortBy(list(rewrite.sort_by))
    try:
        result = action.execute()
    except Py4JJavaError as error:
        return Performed(groups=1, put_off=(_conflict(error, "the manifests stay"),))
    done = int(any(True for _ in result.rewrittenManifests()))
    return Performed(groups=done, groups_done=done)


def _conflict(error: Py4JJavaError, stays: str) -> PutOff:
    """Return a conflict with another writer. Raises any other error."""
    if _kind(error) not in _CONFLICTS:
        raise error
    return PutOff(groups=1, reason=f"another writer committed first, so {stays}", is_conflict=True)


def _actions(session: SparkSession) -> Any:
    return jvm_of(session).org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)


def _filter(session: SparkSession, table: Any, rewrite: DataFilesRewrite) -> Any:
    """Return Iceberg's expression of the chosen partitions and the request's condition."""
    expressions = jvm_of(session).org.apache.iceberg.expressions
    filtered = expressions.Expressions.alwaysTrue()
    if rewrite.partitions is not None:
        filtered = expressions.ExpressionParser.fromJson(json.dumps(rewrite.partitions), table.schema())
    if rewrite.where is None:
        return filtered
    jvm, view = jvm_of(session), f"rewrite_{uuid4().hex}"
    fields = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(table.schema())
    # Spark resolves a condition against a name in its own catalogs, which lack the table.
    session._jsparkSession.createDataFrame(jvm.java.util.ArrayList(), fields).createOrReplaceTempView(view)
    try:
        converter = jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
        resolved = converter.collectResolvedSparkExpression(session._jsparkSession, view, rewrite.where)
        where = converter.convertToIcebergExpression(resolved)
    finally:
        session.catalog.dropTempView(view)
    return getattr(expressions.Expressions, "and")(filtered, where)


def _groups(session: SparkSession, table: Any, filtered: Any, snapshot_id: int, options: Mapping[str, str]) -> int:
    """Return the number of groups of files that Iceberg would rewrite. Its action reports only those done."""
    case_sensitive = session.conf.get("spark.sql.caseSensitive") == "true"
    planner = jvm_of(session).org.apache.iceberg.actions.BinPackRewriteFilePlanner(
        table, filtered, snapshot_id, case_sensitive
    )
    planner.init(dict(options))
    return int(planner.plan().totalGroupCount())


def _strategy(session: SparkSession, action: Any, table: Any, rewrite: DataFilesRewrite) -> Any:
    if rewrite.strategy == "z-order":
        return action.zOrder(_array(session, rewrite.z_order_columns))
    if rewrite.strategy == "bin-pack":
        return action.binPack()
    if rewrite.sort_order is None:
        return action.sort()
    jvm = jvm_of(session)
    order = jvm.org.apache.iceberg.SortOrder.builderFor(table.schema())
    # The session's parser is Iceberg's extension.
    for key in session._jsparkSession.sessionState().sqlParser().parseSortOrder(rewrite.sort_order):
        order = order.sortBy(key.term(), key.direction(), key.nullOrder())
    return action.sort(order.build())


def _array(session: SparkSession, texts: Sequence[str]) -> Any:
    gateway: Any = session.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.String, len(texts))
    for at, text in enumerate(texts):
        array[at] = text
    return array


def _kind(error: Exception) -> str:
    """Return the name of an error's Java class. pyspark converts some to classes of the same name."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getSimpleName())
    return type(error).__name__


def _refusal(error: Exception) -> RewriteError | None:
    """Return the refusal of a name in the request, None for another error."""
    if (kind := _kind(error)) not in _WRONG:
        return None
    message = str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
    return rewrite_refused(f"Iceberg refused the rewrite ({kind}): {printable(message, _LONGEST_REASON)}")


def _engine_error(error: Exception) -> RewriteError:
    return RewriteEngineFailed(f"the Spark job failed or its JVM ended ({_kind(error)}); see the driver's log")
