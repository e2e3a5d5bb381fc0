"""Records of the short benchmarks: what a run is compared with, when it fails, and that the page shows them."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench.records.page import plot
from tests.bench.records.results import ELSEWHERE, TOLERANCE, add, last, load, slower
from tests.bench.records.short import BENCHMARKS, Benchmark, Figure, run, steady

HERE = {"processor": "one", "cores": 2, "python": "3.11"}
OTHER = {**HERE, "processor": "another"}


def record(ratio: float, machine: dict[str, object] = HERE, name: str = "delete", commit: str = "abc") -> dict:
    figure = {"yardstick": "boto3", "cpu_ms": ratio * 10, "yardstick_ms": 10.0, "ratio": ratio}
    return {"commit": commit, "date": "2026-11-23", "machine": machine, "note": "", "figures": {name: figure}}


def test_a_ratio_beyond_the_tolerance_of_the_last_record_is_slower():
    records = [record(0.5), record(0.2)]
    assert slower(records, "delete", 0.2 * (1 + TOLERANCE) - 0.001, HERE) is None
    assert "delete: 0.241 times the yardstick, recorded are 0.200" in str(slower(records, "delete", 0.241, HERE))


def test_a_record_of_this_kind_of_machine_comes_before_a_later_one_of_another():
    records = [record(0.2), record(0.4, OTHER)]
    assert last(records, "delete", HERE) == (0.2, TOLERANCE)
    assert last(records, "delete", {**HERE, "cores": 64}) == (0.4, ELSEWHERE)
    assert last(records, "decode", HERE) is None
    assert slower(records, "decode", 9.9, HERE) is None


def test_a_benchmark_counts_the_least_of_its_rounds_after_the_first():
    ours, other = iter([0.0, 3.0, 2.0, 4.0]), iter([0.0, 6.0, 5.0, 4.0])
    figure = run(Benchmark("other", lambda: (lambda: next(ours), lambda: next(other)), rounds=3))
    assert (figure.cpu_ms, figure.yardstick_ms, figure.ratio) == (2_000, 4_000, 0.5)


def test_a_run_that_is_disturbed_throughout_counts_its_middle_round():
    """The yardstick had one quiet round, ours none; but in every round both were slowed alike."""
    ours, other = iter([0.0, 3.0, 3.0, 3.0]), iter([0.0, 6.0, 1.0, 6.0])
    assert run(Benchmark("other", lambda: (lambda: next(ours), lambda: next(other)), rounds=3)).ratio == 0.5


def test_work_that_is_slower_in_every_round_is_slower_by_either_measure():
    times = [0.0, 6.0, 1.0, 6.0, 2.0, 7.0]
    ours, other = iter([1.5 * one for one in times]), iter(times)
    assert run(Benchmark("other", lambda: (lambda: next(ours), lambda: next(other)), rounds=5)).ratio == 1.5


def test_what_is_recorded_is_the_middle_of_three_runs():
    ours = iter([1.0, 1.0, 9.0, 9.0, 2.0, 2.0])
    assert steady(Benchmark("other", lambda: (lambda: next(ours), lambda: 1.0), rounds=1)).ratio == 2.0


def test_records_are_added_after_the_others(tmp_path: Path):
    place = tmp_path / "bench" / "results.json"
    for note in ("first", "second"):
        add({"delete": Figure("boto3", 2.0, 10.0)}, note, place)
    first, second = load(place)
    assert (first["note"], second["note"]) == ("first", "second")
    assert second["figures"]["delete"] == {"yardstick": "boto3", "cpu_ms": 2.0, "yardstick_ms": 10.0, "ratio": 0.2}
    assert second["machine"].keys() == HERE.keys()


def test_the_plot_has_every_benchmark_and_commit():
    records = [record(0.5, commit="one"), record(0.2, commit="two"), record(2.0, name="a & b", commit="three")]
    texts = [one.text for one in ElementTree.fromstring(plot(records)).iter("{http://www.w3.org/2000/svg}text")]
    assert {"delete", "a & b", "0.200", "2.000"} <= set(texts)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_short_benchmark_has_a_record(name: str):
    assert last(load(), name, HERE) is not None
