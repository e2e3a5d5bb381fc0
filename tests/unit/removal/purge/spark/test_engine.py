"""The Spark engine on a real session: local[2], S3 from moto's server, Python workers as separate processes."""

import io
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from delegation.errors import GuardRefused, RunCancelled
from delegation.iceberg.errors import CorruptManifestError, ManifestMissing
from delegation.polaris.answers import TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.chunks import Phase
from delegation.removal.errors import EngineFailed
from delegation.removal.index import read_index
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.direct import DirectPurge, DirectResources, DirectRun
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.storage.credentials import S3Settings
from delegation.storage.deleter import DeletePolicy
from delegation.storage.locations import UnsupportedLocation, parse
from tests.kit.errors import coded
from tests.kit.lakes.lake import Lake, LakeSource, PurgedTables, busy_table, filled, identifier, rows
from tests.spark_sessions import spark_session
from tests.unit.cli.test_purge_files import Disk

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
AWS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in AWS.items():
            environment.setenv(name, value)
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")
        for bucket in ("lake", "plans"):
            client.create_bucket(Bucket=bucket)
        yield client
    server.stop()


@pytest.fixture(scope="module")
def spark(s3: Any) -> Iterator[Any]:
    with spark_session(environment=AWS) as session:
        yield session.sparkContext


class S3Source(LakeSource):
    """The lake's tables; a table is missing once its metadata.json is deleted from S3."""

    s3: Any

    def load(self) -> LoadedTable:
        table = super().load()
        found = parse(table.metadata_location)
        if not self.s3.list_objects_v2(Bucket=found.bucket, Prefix=found.key).get("KeyCount"):
            raise TableMetadataMissing("Location does not exist", status=400)
        return table


class S3Bench(PurgedTables):
    """A bench whose objects are in S3."""

    def on_s3(self, s3: Any, name: str, task_id: str, **options: Any) -> tuple[PurgeContext, DirectResources]:
        for (bucket, key), data in self.lake.objects.items():
            s3.put_object(Bucket=bucket, Key=key, Body=data)
        place = DirectResources("s3://plans", settings=S3Settings(endpoint=s3.meta.endpoint_url, region="us-east-1"))
        source = S3Source(self.lake, name)
        source.s3 = s3
        ctx = PurgeContext(
            attempt=MemoryAttempt(task_id),
            identifier=identifier(name),
            table_uuid=self.uuid(name),
            tables=source,
            store=place.store(identifier(name)),
            plans=place.plans(),
            options=PurgeOptions(**options),
            settings=PurgeSettings(chunk_paths=5, delete=DeletePolicy(batch=3, threads=2)),
        )
        return ctx, place


def keys(s3: Any, prefix: str) -> set[str]:
    return {one["Key"] for one in s3.list_objects_v2(Bucket="lake", Prefix=prefix).get("Contents", [])}


def test_spark_makes_the_inline_engines_plan_and_deletes_exactly_its_files(s3: Any, spark: Any) -> None:
    from delegation.removal.purge.spark import purge_with_spark

    bench = filled(S3Bench(), "spark_doomed", "spark_sibling")
    ctx, place = bench.on_s3(s3, "spark_doomed", "spark-task")
    doomed, sibling = keys(s3, "wh/spark_doomed/"), keys(s3, "wh/spark_sibling/")
    inline_plan = purge_table(replace(ctx, attempt=MemoryAttempt("inline"), options=PurgeOptions(dry_run=True)))

    result = purge_with_spark(spark, ctx, place)

    assert result.engine == "spark"
    assert result.files_deleted == len(doomed) == inline_plan.files_planned
    assert keys(s3, "wh/spark_doomed/") == set()
    assert keys(s3, "wh/spark_sibling/") == sibling
    counts = [read_index(ctx.plans, one.plan_ids[0]).counts for one in (result, inline_plan)]
    assert counts[0] == counts[1]
    assert ctx.attempt.reported.files_deleted == len(doomed)
    again = purge_with_spark(spark, ctx, place)
    assert again.files_deleted == len(doomed)


@pytest.mark.long
def test_spark_purges_no_protected_table(s3: Any, spark: Any) -> None:
    from delegation.removal.purge.spark import purge_with_spark

    bench = filled(S3Bench(), "spark_protected")
    bench.lake.rewrite_metadata("spark_protected", {"properties": {"delegation.protected": "true"}})
    ctx, place = bench.on_s3(s3, "spark_protected", "spark-protected")
    before = keys(s3, "wh/spark_protected/")
    with pytest.raises(GuardRefused, check=coded("TABLE_PROTECTED")):
        purge_with_spark(spark, ctx, place)
    assert keys(s3, "wh/spark_protected/") == before


@pytest.mark.long
def test_spark_extends_the_plan_after_a_commit_and_raises_the_errors_of_executors(
    s3: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from delegation.removal import spark as spark_engine
    from delegation.removal.purge.spark import purge_with_spark

    bench = filled(S3Bench(), "moving")
    ctx, place = bench.on_s3(s3, "moving", "moving-task")
    before = set(bench.lake.objects)

    def commit() -> None:
        bench.lake.table("moving").append(rows(9, part="z"))
        for bucket, key in set(bench.lake.objects) - before:
            s3.put_object(Bucket=bucket, Key=key, Body=bench.lake.objects[bucket, key])

    bench.on_load(ctx, 3, commit)
    result = purge_with_spark(spark, ctx, place)
    assert len(result.plan_ids) == 2
    assert keys(s3, "wh/moving/") == set()
    extension = read_index(ctx.plans, result.plan_ids[1])
    assert sum(chunk.count for chunk in extension.chunks if chunk.kind is Phase.DATA) == 1

    broken = S3Bench()
    broken.lake = Lake()
    busy_table(broken.lake, "broken")
    manifest = next(where for where in broken.lake.objects if where[1].endswith("-m0.avro"))
    broken.lake.objects[manifest] = b"x" * len(broken.lake.objects[manifest])
    ctx, place = broken.on_s3(s3, "broken", "broken-task")
    whole = keys(s3, "wh/broken/")
    with pytest.raises(CorruptManifestError):
        purge_with_spark(spark, ctx, place)
    assert keys(s3, "wh/broken/") == whole

    def cancel_once_it_runs() -> None:
        if any(thread.name.startswith("files-broken") for thread in threading.enumerate()):
            raise RunCancelled("t")

    ctx.attempt.on_checkpoint = cancel_once_it_runs
    monkeypatch.setattr(spark_engine, "POLL_SECONDS", 0.05)
    with pytest.raises(RunCancelled):
        purge_with_spark(spark, ctx, place)
    assert not any(thread.name.startswith("files-broken") for thread in threading.enumerate())
    # Spark's own listener hears of a job's end a little after the thread that ran it.
    deadline = time.monotonic() + 30
    while spark.statusTracker().getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert spark.statusTracker().getActiveJobsIds() == []
    assert keys(s3, "wh/broken/") == whole


@pytest.mark.long
def test_spark_purges_a_damaged_table_as_the_inline_engine_does(s3: Any, spark: Any) -> None:
    """A lost manifest, statistics on another scheme and an empty former metadata file, with the operator's settings."""
    from delegation.removal.purge.spark import purge_with_spark

    bench = filled(S3Bench(), "damaged")
    log = parse(bench.lake.metadata("damaged")["metadata-log"][0]["metadata-file"])
    bench.lake.objects[log.bucket, log.key] = b""
    statistics = [{"statistics-path": "gs://lake/x", "file-size-in-bytes": 1}]
    bench.lake.rewrite_metadata("damaged", {"statistics": statistics})
    del bench.lake.objects[min(where for where in bench.lake.objects if where[1].endswith("-m0.avro"))]
    ctx, place = bench.on_s3(s3, "damaged", "damaged-task")
    whole = keys(s3, "wh/damaged/")
    with pytest.raises(UnsupportedLocation):
        purge_with_spark(spark, ctx, place)
    with pytest.raises(ManifestMissing):
        purge_with_spark(spark, replace(ctx, options=PurgeOptions(unsupported="keep")), place)
    assert keys(s3, "wh/damaged/") == whole

    keeping = PurgeOptions(damaged="keep", unsupported="keep")
    dry = replace(keeping, dry_run=True)
    inline_plan = purge_table(replace(ctx, attempt=MemoryAttempt("damaged-inline"), options=dry))
    result = purge_with_spark(spark, replace(ctx, options=keeping), place)
    assert result.files_deleted == inline_plan.files_planned
    assert result.findings == inline_plan.findings
    codes = {"MANIFEST_MISSING", "UNSUPPORTED_LOCATION", "FORMER_METADATA_UNREADABLE"}
    assert {one.code: one.count for one in result.findings} == dict.fromkeys(codes, 1)
    assert len(keys(s3, "wh/damaged/")) == len(whole) - result.files_deleted


@pytest.mark.long
def test_a_job_whose_executors_hang_makes_no_progress(
    s3: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polls alone are no progress: it is recorded once for each Spark task or mark that is finished."""
    from delegation.removal import spark as spark_engine

    polls = 40
    release = tmp_path / "release"

    def hang(results: Any) -> Any:
        import time
        from pathlib import Path

        while not Path(release).exists():
            time.sleep(0.02)
        yield from results

    bench = filled(S3Bench(), "hung")
    ctx, place = bench.on_s3(s3, "hung", "hung-task")
    polled: list[int] = []

    def marks() -> int:
        polled.append(len(polled))
        if len(polled) == polls:
            release.touch()
        return 1 if len(polled) > polls // 2 else 0

    monkeypatch.setattr(spark_engine, "POLL_SECONDS", 0.05)
    work = spark.parallelize([{}], 1).repartition(1).mapPartitions(hang)
    assert spark_engine.SparkJobs(spark, place).run(ctx.attempt, work, marks) == [{}]
    assert len(polled) >= polls
    # At most the mark, the tasks that made the results, and the task that hung, after its release.
    assert 1 <= ctx.attempt.signs_of_life <= 4


@pytest.mark.long
def test_results_that_do_not_arrive_whole_are_no_plan(
    s3: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM that ends while it sends results closes its socket, which pyspark takes for their end."""
    import pyspark.util

    from delegation.removal import spark as spark_engine

    connect = pyspark.util._create_local_socket

    def closing(address: Any) -> io.BytesIO:
        return io.BytesIO(connect(address).read()[:-1])

    bench = filled(S3Bench(), "cut")
    ctx, place = bench.on_s3(s3, "cut", "cut-task")
    work = spark.parallelize(range(3), 3).map(lambda number: {"number": number})
    jobs = spark_engine.SparkJobs(spark, place)
    assert jobs.run(ctx.attempt, work) == [{"number": number} for number in range(3)]
    monkeypatch.setattr(pyspark.util, "_create_local_socket", closing)
    with pytest.raises(EngineFailed, match="1 of 3 tasks"):
        jobs.run(ctx.attempt, work)


@pytest.mark.long
def test_executors_count_no_bytes_of_files_that_were_absent(spark: Any, tmp_path: Path) -> None:
    from delegation.removal.purge.spark import purge_with_spark

    disk = Disk(tmp_path)
    location = disk.table("doomed").metadata_location
    absent = Path(next(name for name in sorted(disk.files()) if name.endswith(".parquet")))
    planned = sum(Path(name).stat().st_size for name in disk.files())
    size = absent.stat().st_size
    absent.unlink()
    run = DirectRun(DirectPurge(location, "spark"), DirectResources(str(disk.plan)))
    result = purge_with_spark(spark, run.context(), run.resources)
    assert (result.files_absent, result.bytes_planned - result.bytes_deleted) == (1, size)
    assert result.bytes_deleted <= planned - size
    assert run.marked()[1] == (result.files_deleted, result.bytes_deleted, 1)


@pytest.mark.long
def test_a_purge_without_the_service_uses_spark_and_a_plan_in_a_directory(s3: Any, spark: Any, tmp_path: Path) -> None:
    """It must be the last test of this module, because the command stops the session."""
    bench = filled(S3Bench(), "direct")
    bench.on_s3(s3, "direct", "unused")
    settings = S3Settings(endpoint=s3.meta.endpoint_url, region="us-east-1", path_style=True)
    run = DirectRun(
        DirectPurge(bench.lake.pointers["direct"], "spark"), DirectResources(str(tmp_path / "plan"), settings)
    )
    files = len(keys(s3, "wh/direct/"))
    result = run()
    assert (result.engine, result.files_deleted) == ("spark", files)
    assert keys(s3, "wh/direct/") == set()
    assert len(list((tmp_path / "plan").rglob("receipt.json"))) == 1
