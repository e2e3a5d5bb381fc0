"""Children that others wait for too, that are missing, that would wait for themselves, or that are a thousand."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import BaseModel

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import AdoptedChildren, Status, Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Adopt, Create, TaskChange
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.submit import Parent
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.maintenance import MaintenanceReport, TaskMaintenance, store_maintenance
from delegation.tasks.work.worker import Worker
from tests.kit.tasks.builders import MINUTE
from tests.kit.tasks.sites import ONE, Site, Sum, Total, Transient, add, identity


class Named(BaseModel):
    name: str


CHILD = Behavior("CHILD", Sum, add, result=Total, identify=identity)
NAMELESS = Behavior("NAMELESS", Sum, add, result=Total)


def parent_of(run: AttemptContext) -> Parent:
    return Parent(run.task.task_id, run.task.attempt_count)


def parents(kind: str, work: Callable[[Named, AttemptContext], None]) -> Behavior[Named, BaseModel]:
    return Behavior(kind, Named, work, identify=lambda parameters: parameters.name)


def settle(site: Site, worker: Worker, turns: int = 20) -> None:
    for _ in range(turns):
        while worker.run_once() is not None:
            pass
        site.clock.advance(2 * MINUTE)


# ---- waiting for oneself


def test_a_task_that_submits_itself_is_refused() -> None:
    site = Site()

    def work(parameters: Named, run: AttemptContext) -> None:
        site.client().submit(behavior, parameters, parent=parent_of(run))

    behavior = parents("SELF", work)
    task_id = site.client().submit(behavior, Named(name="a")).task_id
    settle(site, site.worker("w", behavior))
    head = site.head(task_id)
    assert (head.status, head.error_code, head.attempt_count) == (Status.FAILURE, "WAITS_FOR_ITSELF", 1)
    assert head.result_summary is not None
    assert task_id in head.result_summary


@pytest.mark.parametrize("levels", [1, 3])
def test_a_task_that_submits_an_ancestor_is_refused(levels: int) -> None:
    """The ancestors get CHILD_FAILED and end."""
    site = Site()

    def work(parameters: Named, run: AttemptContext) -> None:
        level = int(parameters.name)
        following = Named(name=str((level + 1) % (levels + 1)))
        site.client().submit(behavior, following, parent=parent_of(run))

    behavior = parents("RING", work)
    ids = [behavior.task_id(Named(name=str(level))) for level in range(levels + 1)]
    site.client().submit(behavior, Named(name="0"))
    settle(site, site.worker("w", behavior))
    assert [site.head(one).status for one in ids] == [Status.FAILURE] * (levels + 1)
    assert [site.head(one).error_code for one in ids] == ["CHILD_FAILED"] * levels + ["WAITS_FOR_ITSELF"]


class Meeting(MemoryTaskStore):
    """Calls `before_adopting` once, when a first adoption has been decided on and is about to be written."""

    before_adopting: Callable[[], object] | None = None

    def apply(self, change: TaskChange) -> Task:
        if isinstance(change, Adopt) and self.before_adopting is not None:
            act, self.before_adopting = self.before_adopting, None
            act()
        return super().apply(change)


def test_two_tasks_that_submit_each_other_at_the_same_moment_do_not_wait_for_ever() -> None:
    """Neither sees the other as an ancestor when it looks."""
    store = Meeting()
    site = Site(store=store)

    def work(parameters: Named, run: AttemptContext) -> None:
        other = "b" if parameters.name == "a" else "a"
        site.client().submit(behavior, Named(name=other), parent=parent_of(run))

    behavior = parents("PAIR", work)
    ids = [site.client().submit(behavior, Named(name=name)).task_id for name in "ab"]
    store.before_adopting = site.worker("second", behavior).run_once
    settle(site, site.worker("w", behavior))
    assert [store.children(one)[0].task_id for one in ids] == ids[::-1]
    assert [site.head(one).is_terminal for one in ids] == [True, True]
    assert "WAITS_FOR_ITSELF" in {site.head(one).error_code for one in ids}


# ---- missing children


class Losing(MemoryTaskStore):
    """Refuses to store the first child while `losing`."""

    losing = True

    def apply(self, change: TaskChange) -> Task:
        if self.losing and isinstance(change, Create) and change.after.task_type == "CHILD":
            raise StoreUnavailable("no answer")
        return super().apply(change)


def test_a_child_that_the_last_attempt_adopted_and_that_is_absent_is_created_again() -> None:
    store = Losing()
    site = Site(store=store)

    def work(_parameters: Named, run: AttemptContext) -> None:
        with pytest.raises(StoreUnavailable):
            site.client().submit(CHILD, ONE, parent=parent_of(run))

    behavior = parents("PARENT", work)
    parent = site.client().submit(behavior, Named(name="a"))
    worker = site.worker("w", behavior, CHILD)
    worker.run_once()
    assert not site.head(parent.task_id).is_terminal
    store.losing = False
    settle(site, worker)
    child = site.head(CHILD.task_id(ONE))
    assert (child.status, child.parent_id) == (Status.SUCCESS, parent.task_id)
    assert child.last_status_change_ts <= site.head(parent.task_id).last_status_change_ts
    assert site.head(parent.task_id).status is Status.SUCCESS


def test_a_child_that_only_an_earlier_attempt_adopted_and_that_is_absent_is_ignored() -> None:
    site = Site(store=Losing())

    def work(_parameters: Named, run: AttemptContext) -> None:
        if run.task.attempt_count == 1:
            site.client().submit(CHILD, ONE, parent=parent_of(run))

    behavior = parents("PARENT", work)
    task_id = site.client().submit(behavior, Named(name="a")).task_id
    settle(site, site.worker("w", behavior, CHILD))
    assert (site.head(task_id).status, site.store.get(CHILD.task_id(ONE))) == (Status.SUCCESS, None)


# ---- a child of two parents


def two_parents(site: Site) -> tuple[Behavior[Named, BaseModel], list[str], Worker]:
    """Two parents of one child, all waiting."""

    def work(_parameters: Named, run: AttemptContext) -> None:
        site.client().submit(CHILD, ONE, parent=parent_of(run))

    behavior = parents("PARENT", work)
    ids = [site.client().submit(behavior, Named(name=name)).task_id for name in "ab"]
    worker = site.worker("w", behavior)
    worker.run_once()
    worker.run_once()
    return behavior, ids, worker


@pytest.mark.parametrize("first", [0, 1])
def test_cancelling_a_parent_leaves_a_child_that_another_parent_waits_for(first: int) -> None:
    site = Site()
    behavior, ids, worker = two_parents(site)
    site.service().operators.cancel(ids[first])
    settle(site, worker)
    child = site.head(CHILD.task_id(ONE))
    assert (child.cancel_requested, child.is_terminal) == (False, False)
    assert site.head(ids[first]).error_code == "CANCELLED"
    settle(site, site.worker("x", behavior, CHILD))
    assert site.head(child.task_id).status is Status.SUCCESS
    assert site.head(ids[1 - first]).status is Status.SUCCESS


def test_cancelling_both_parents_cancels_the_child() -> None:
    site = Site()
    _, ids, worker = two_parents(site)
    for one in ids:
        site.service().operators.cancel(one)
    site.clock.advance(2 * MINUTE)
    worker.run_once()
    assert site.head(CHILD.task_id(ONE)).error_code == "CANCELLED"  # neither leaves it to the other
    settle(site, worker)
    assert [site.head(one).error_code for one in (*ids, CHILD.task_id(ONE))] == ["CANCELLED"] * 3


# ---- children without an identity


def nameless_parent(
    site: Site, fails: Callable[[AttemptContext], bool], **more: timedelta
) -> Behavior[Named, BaseModel]:
    def work(_parameters: Named, run: AttemptContext) -> None:
        for _ in range(3):
            site.client().submit(NAMELESS, ONE, parent=parent_of(run))
        if fails(run):
            raise Transient("try again")

    return replace(parents("PARENT", work), **more)  # type: ignore[arg-type]


def nameless(site: Site) -> list[Task]:
    return [head for head in site.store.heads(limit=10_000).tasks if head.task_type == "NAMELESS"]


def test_children_without_an_identity_run_once_when_their_failed_parent_is_retried_on_request() -> None:
    site = Site()
    failing = [True]
    behavior = nameless_parent(site, lambda run: failing[0])
    task_id = site.client().submit(behavior, Named(name="a")).task_id
    worker = site.worker("w", behavior, NAMELESS)
    settle(site, worker)
    assert site.head(task_id).status is Status.FAILURE
    failing[0] = False
    site.service().operators.retry(task_id)
    settle(site, worker)
    assert site.head(task_id).status is Status.SUCCESS
    assert [child.attempt_count for child in nameless(site)] == [1] * 3


# ---- many children


def test_adopting_a_thousand_children_is_linear() -> None:
    """The head stays small, and each child costs the same number of writes."""
    sizes: list[int] = []
    writes: list[int] = []

    class Counting(MemoryTaskStore):
        def apply(self, change: TaskChange) -> Task:
            task = super().apply(change)
            writes.append(1)
            sizes.append(len(json.dumps(codec.head_item(task))))
            return task

    site = Site(store=Counting())

    def work(_parameters: Named, run: AttemptContext) -> None:
        for number in range(1_000):
            site.client().submit(CHILD, Sum(left=number, right=0), parent=parent_of(run))

    behavior = parents("PARENT", work)
    task_id = site.client().submit(behavior, Named(name="a")).task_id
    site.worker("w", behavior).run_once()
    assert max(sizes) < 3_000
    assert len(writes) <= 2 * 1_000 + 10
    assert len(site.service().reads.children(task_id)) == 1_000


def test_an_older_release_listed_the_children_in_the_head() -> None:
    site = Site()

    def work(_parameters: Named, run: AttemptContext) -> None:
        service = site.service()
        child, _ = service.submission.create(
            service.submission.first(task_id=CHILD.task_id(ONE), task_type="CHILD", payload=ONE.model_dump_json())
        )
        service.writes.change(
            run.task.task_id,
            lambda task, _now: task.evolve(family=AdoptedChildren(children=(*task.family.children, child.task_id))),
        )

    behavior = parents("PARENT", work)
    task_id = site.client().submit(behavior, Named(name="a")).task_id
    worker = site.worker("w", behavior)
    worker.run_once()
    assert (site.head(task_id).status, site.head(task_id).error_code) == (Status.RETRY_SCHEDULED, "CHILDREN_PENDING")
    settle(site, site.worker("x", behavior, CHILD))
    assert site.head(task_id).status is Status.SUCCESS
    assert site.head(CHILD.task_id(ONE)).last_status_change_ts <= site.head(task_id).last_status_change_ts


# ---- maintenance


def maintained(site: Site) -> MaintenanceReport:
    """Run maintenance once, a year later."""
    site.clock.advance(timedelta(days=365))
    kinds = {"PARENT", "CHILD", "NAMELESS"}
    behavior = replace(store_maintenance(site.service(), lambda: None, lambda: kinds), every=None, identify=None)
    task_id = site.client().submit(behavior, TaskMaintenance()).task_id
    site.worker("maintenance", behavior).run_once()
    return MaintenanceReport.model_validate_json(site.head(task_id).result_extended or "")


@pytest.mark.parametrize("ended", [0, 1])
def test_a_child_is_kept_while_any_parent_awaits_it(ended: int) -> None:
    site = Site()
    _, ids, worker = two_parents(site)
    child = CHILD.task_id(ONE)
    site.service().operators.cancel(ids[ended])
    settle(site, worker)
    site.service().operators.cancel(child)
    assert site.head(ids[ended]).is_terminal
    maintained(site)
    assert site.head(child).is_terminal
    settle(site, worker)
    maintained(site)
    maintained(site)
    assert (site.store.get(child), site.store.parents(child)) == (None, {})


def test_the_records_of_the_children_of_former_runs_are_removed() -> None:
    site = Site()
    behavior = nameless_parent(site, lambda run: False, every=timedelta(hours=1))
    task_id = site.client().submit(behavior, Named(name="a")).task_id
    worker = site.worker("w", behavior, NAMELESS)
    for runs in (1, 2, 3):
        settle(site, worker, 10)
        assert [child.status for child in nameless(site)] == [Status.SUCCESS] * 3 * runs, "each run has its own"
        site.clock.advance(timedelta(hours=1))
    assert len(site.store.children(task_id)) == 9
    maintained(site)
    assert site.store.children(task_id) == ()
    assert site.service().reads.children(task_id) == ()


def test_a_retried_parent_does_not_await_what_it_did_not_adopt() -> None:
    """A child that failed with the former submission is no child of the next one, unless that adopts it again."""
    site = Site()
    child = [ONE]

    def work(_parameters: Named, run: AttemptContext) -> None:
        site.client().submit(CHILD, child[0], parent=parent_of(run))

    behavior = parents("PARENT", work)
    task_id = site.client().submit(behavior, Named(name="a")).task_id
    worker = site.worker("w", behavior)
    worker.run_once()
    site.service().operators.cancel(CHILD.task_id(ONE))
    settle(site, worker)
    assert site.head(task_id).error_code == "CHILD_FAILED"
    child[0] = Sum(left=5, right=5)
    site.service().operators.retry(task_id)
    settle(site, site.worker("x", behavior, CHILD))
    assert site.head(task_id).status is Status.SUCCESS
    assert site.service().reads.children(task_id) == (CHILD.task_id(child[0]),)
