"""What a task function reports: typed progress, and a map of its own that can never hide a field of the task."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.progress import merged
from delegation.tasks.stores import codec
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from polaris_common.errors import DelegationError
from tests.contract.task_tables import moto_task_store
from tests.kit.tasks.builders import NOW, SECOND, submitted
from tests.kit.tasks.sites import ONE, Site, Sum, Total


@pytest.fixture(params=["memory", "dynamodb"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    if request.param == "memory":
        yield Site()
        return
    with moto_task_store() as store:
        yield Site(store=store)  # type: ignore[arg-type]


def ran(site: Site, work: Callable[[AttemptContext], object], **options: Any) -> Task:
    """Run a task with this work once, and return its head."""

    def counting(_parameters: Sum, run: AttemptContext) -> Total:
        work(run)
        return Total(total=3)

    behavior = Behavior("acme.count", Sum, counting, result=Total, **options)
    task_id = site.client().submit(behavior, ONE).task_id
    site.worker("w", behavior).run_once()
    return site.head(task_id)


def test_a_report_is_typed_progress_and_a_map_of_ones_own(site: Site) -> None:
    seen: list[Task] = []
    mine = {"share": 0.25, "status": "odd", "version": 7, "rows": [1, {"deep": None}], "big": 2**70}

    def work(run: AttemptContext) -> None:
        site.clock.advance(3 * SECOND)  # so late that the report is written
        run.report(done=3, total=12, unit="rows", message="second page", eta=NOW, details=mine)
        seen.append(site.head(run.task.task_id))

    task = ran(site, work)
    assert task.status is Status.SUCCESS
    [while_running] = seen
    for head in (while_running, task):
        assert head.progress.model_dump() == {"done": 3, "total": 12, "unit": "rows", "message": "second page"}
        assert head.reported == mine
        assert (head.eta_ts is not None) == (head is while_running)
    shown = json.loads(json.dumps(while_running.public()))
    assert (shown["details"], shown["progress"]["done"], shown["status"]) == (mine, 3, "RUNNING")


@pytest.mark.parametrize(
    ("report", "named"),
    [
        ({"own_field": 3}, "own_field"),
        ({"status": "odd"}, "status"),
        ({"done": -1}, "done"),
        ({"done": "three"}, "done"),
        ({"done": 1.5}, "done"),
        ({"message": "x" * 2_000}, "message"),
        ({"details": {"when": NOW}}, "details.when"),
        ({"details": {"share": float("nan")}}, "details.share"),
        ({"details": {"deep": [{"er": object()}]}}, "details.deep.0.er"),
        ({"details": {3: "x"}}, "details"),
        ({"details": ["x"]}, "details"),
        ({"details": {"x": "y" * 20_000}}, "details"),
        ({"details": {"lone": "\ud800"}}, "details"),
    ],
    ids=range(13),
)
def test_a_report_that_cannot_be_stored_is_refused_at_the_first_call(report: dict[str, Any], named: str) -> None:
    """Also where the report comes too soon to be written; and it is no reason to try the work again."""
    task = ran(Site(), lambda run: run.report(**report))
    assert (task.status, task.error_code, task.attempt_count) == (Status.FAILURE, "BAD_REPORT", 1)
    assert task.result_summary is not None
    assert named in task.result_summary


def test_a_report_that_comes_too_soon_is_written_with_the_next_or_with_the_outcome() -> None:
    def work(run: AttemptContext) -> None:
        run.report(done=1, details={"first": 1})
        run.report(done=2, details={"second": 2})

    head = ran(Site(), work)
    assert (head.progress.done, head.reported) == (2, {"first": 1, "second": 2})


def test_a_detail_that_is_none_is_removed_and_another_run_starts_without_reports() -> None:
    site = Site()

    def work(run: AttemptContext) -> None:
        run.report(done=1, details={"kept": 1, "gone": 2})
        run.report(details={"gone": None})

    head = ran(site, work, every=10 * SECOND)
    [ended] = [row for row in site.store.history(head.task_id) if row.status is Status.SUCCESS]
    assert (ended.reported, ended.progress.done) == ({"kept": 1}, 1)
    assert (head.reported, head.progress) == ({}, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(max_size=8), JSON.filter(lambda value: value is not None), max_size=4))
def test_whatever_is_accepted_reads_back_as_it_was_reported(mine: dict[str, Any]) -> None:
    code = None
    try:
        reported = merged({}, mine)
    except DelegationError as refused:
        code = refused.code
    if code is not None:  # a lone surrogate is no text
        assert (code, "\\ud" in json.dumps(mine)) == ("BAD_REPORT", True)
        return
    task = submitted(reported=reported)
    assert codec.task_of(codec.head_item(task)) == task
    assert codec.task_of(codec.head_item(task)).reported == mine
