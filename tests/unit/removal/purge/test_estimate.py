"""The forecast of a plan's execution, the digest of its files, and the progress rate."""

import dataclasses
import json
import subprocess
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from delegation.removal.choice import Forecast, forecast, prices
from delegation.removal.chunks import Chunk, Phase, Total
from delegation.removal.errors import PlanTampered
from delegation.removal.index import PlanIndex, load_index, read_index
from delegation.removal.marks import paths_digest
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.removal.task_attempt import pace_of
from tests.kit.lakes.lake import NOW, PurgedTables, rows
from tests.kit.plans import plan_index


def plan(*counts: int) -> PlanIndex:
    """Return an index of chunks with these numbers of files, ten bytes each."""
    stated: dict[str, Any] = {"sha256": "", "first": "a", "last": "b"}
    chunks = [
        Chunk(name=f"DATA-{n}", kind=Phase.DATA, count=count, bytes=10 * count, **stated)
        for n, count in enumerate(counts)
    ]
    kept = Chunk(name="KEPT-0", kind=Phase.KEPT, count=7, bytes=70, **stated)
    return plan_index(
        chunks=(*chunks, kept), counts={"data": Total(files=sum(counts), bytes=10 * sum(counts))}, roots=()
    )


def forecast_of(*counts: int, engine: str = "inline", rate: float = 3_500.0) -> Forecast:
    settings = PurgeSettings(store_keys_per_second=rate)
    return forecast([plan(*counts)], (), settings, engine="spark" if engine == "spark" else "inline")


def test_time_is_files_divided_by_the_stores_rate() -> None:
    assert forecast_of(10_000, 4_000).seconds == 4.0
    assert forecast_of(10_000, 4_000, rate=100.0).seconds == 140.0
    assert forecast_of(7_000, engine="spark").seconds == 2.0 + prices().emr_start_seconds


def test_files_are_counted_and_each_chunk_starts_a_batch() -> None:
    one, batch = forecast_of(250), PurgeSettings().delete.batch
    assert (one.files, one.bytes, one.files_kept, one.by_type["data"].files) == (250, 2_500, 7, 250)
    assert forecast_of(batch + 1, 1).delete_requests == 3
    assert forecast_of(batch).delete_requests == 1
    assert forecast_of(batch).other_requests > 0


def test_cost_is_requests_and_the_engines_time() -> None:
    listed, spark, inline = prices(), forecast_of(3_500 * 3_600, engine="spark"), forecast_of(3_500 * 60)
    hours = 1 + listed.emr_start_seconds / 3_600
    assert spark.emr_vcpu_hours == pytest.approx(hours * listed.emr_job_vcpu, abs=0.001)
    assert spark.lambda_gb_seconds == inline.emr_vcpu_hours == 0.0
    assert inline.lambda_gb_seconds == pytest.approx(60 * listed.lambda_gb, abs=0.1)
    requests = spark.delete_requests * listed.s3_write_request
    engine = hours * (listed.emr_job_vcpu * listed.emr_vcpu_hour + listed.emr_job_gb * listed.emr_gb_hour)
    assert spark.cost == pytest.approx(requests + engine, abs=0.01)


@pytest.mark.parametrize(
    ("files", "part"), [(1, "about 1 s"), (3_500 * 89, "about 89 s"), (3_500 * 120, "about 2 min"), (10**8, "7 h 57")]
)
def test_the_forecast_as_a_line_of_text(files: int, part: str) -> None:
    text = forecast_of(files).text()
    assert part in text
    assert f"us-east-1 prices of {prices().as_of}" in text
    assert date.fromisoformat(prices().as_of) <= NOW.date()


def test_a_dry_run_stores_its_forecast_beside_the_plan(bench: PurgedTables) -> None:
    result = purge_table(bench.context("t", options=PurgeOptions(dry_run=True)))
    assert result.forecast is not None
    stored = json.loads(bench.plans.objects[f"{result.plan_ids[0]}/estimate.json"])
    assert stored == json.loads(result.forecast.model_dump_json())
    assert stored["files"] == result.files_planned == sum(one["files"] for one in stored["by_type"].values())
    assert set(stored["by_type"]) == {"data", "manifest", "manifest-list", "former-metadata", "metadata"}
    assert stored["prices_as_of"] == prices().as_of


def test_standard_tools_compute_the_same_digest_from_the_chunks(bench: PurgedTables, tmp_path: Path) -> None:
    """The plan has two segments, several chunks and paths that JSON escapes; the order is by bytes."""
    bench.lake.table("t").append(rows(7, part='q"uo\\te\x01 ü\U0001f600'))
    ctx = bench.context("t")
    bench.on_load(ctx, 3, lambda: bench.lake.table("t").append(rows(8)))
    doomed = bench.left()
    digest = bench.receipt(purge_table(ctx))["paths_sha256"]
    segments = bench.head.read()
    assert len(segments) == 2
    for segment in segments:
        for chunk in load_index(bench.plans, segment).chunks:
            file = tmp_path / f"{len(list(tmp_path.iterdir()))}.gz"
            file.write_bytes(bench.plans.objects[f"{segment.id}/{chunk.name}"])
    lines = subprocess.run(["zcat", *tmp_path.iterdir()], check=True, capture_output=True).stdout.splitlines()
    paths = [json.loads(line)["path"] for line in lines]
    assert doomed < set(paths)
    listed = tmp_path / "paths"
    listed.write_text("".join(f"{path}\n" for path in paths))
    script = f"LC_ALL=C sort {listed} | sha256sum"
    assert subprocess.run(script, shell=True, check=True, capture_output=True).stdout.split()[0].decode() == digest


def test_the_digest_does_not_depend_on_chunks_and_refuses_altered_ones(bench: PurgedTables) -> None:
    fewer = dataclasses.replace(bench.context("t").settings, chunk_paths=1_000)
    plan_id, other = bench.dry_run(), bench.dry_run(settings=fewer)
    index = read_index(bench.plans, plan_id)
    assert paths_digest(bench.plans, [index]) == paths_digest(bench.plans, [read_index(bench.plans, other)])
    bench.plans.objects[f"{plan_id}/DATA-00000.jsonl.gz"] += b"\x00"
    with pytest.raises(PlanTampered):
        paths_digest(bench.plans, [index])


TEN = timedelta(seconds=10)


@pytest.mark.parametrize(
    ("since", "planned", "deleted", "after", "pace"),
    [
        (None, 100, 50, TEN, (None, None)),
        (0, 100, 50, timedelta(0), (None, None)),
        (50, 100, 50, TEN, (None, None)),
        (0, 100, 50, TEN, (5, NOW + 2 * TEN)),
        (40, 100, 60, TEN, (2, NOW + 3 * TEN)),
        (0, None, 50, TEN, (5, None)),
        (0, 100, 100, TEN, (10, NOW + TEN)),
    ],
)
def test_the_rate_is_that_of_this_attempt(
    since: int | None, planned: int | None, deleted: int, after: timedelta, pace: tuple[Any, Any]
) -> None:
    began = None if since is None else (NOW, since)
    assert pace_of(began, planned, deleted, NOW + after) == pace
