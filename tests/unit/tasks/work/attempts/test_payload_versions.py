"""A payload of a newer version of its behavior is left alone; one that is malformed fails its task."""

from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.orchestration.failures import Step
from delegation.orchestration.steps import Steps
from delegation.orchestration.sweep import sweep
from delegation.tasks.life.model import Status
from delegation.tasks.stores.base import Create
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.worker import DueHints, LeftAlone, lease_next_available_task
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, submitted
from tests.kit.tasks.harness import an_hour
from tests.kit.tasks.sites import ADD, ONE, Site

ADD_2 = replace(ADD, version=2)


def known(site: Site, behavior: Behavior) -> Behaviors:
    return Behaviors([FunctionBehavior(site.service(), behavior, monotonic=site.seconds)])


def test_a_worker_leaves_a_newer_payload_alone(site: Site) -> None:
    task_id = site.client().submit(ADD_2, ONE).task_id
    before = site.head(task_id)
    old = site.worker("old", ADD)
    assert old.run_once() is None
    assert site.head(task_id) is before
    read: list[str] = []
    site.store.fault = read.append
    assert old.run_once() is None
    assert set(read) == {"before due"}
    site.store.fault = lambda _point: None
    site.worker("new", ADD_2).run_once()
    assert site.head(task_id).status is Status.SUCCESS


def test_the_sweeper_and_the_steps_leave_a_newer_payload_alone(site: Site) -> None:
    task_id = site.client().submit(ADD_2, ONE).task_id
    before = site.head(task_id)
    behaviors = known(site, ADD)
    steps = Steps(site.service(), behaviors.task_types, behaviors=behaviors)
    assert steps.acquire(Step(task_id, 1), site.clock() + MINUTE)["next"] == "stop"
    site.clock.advance(HOUR)
    swept = list(sweep(site.service(), behaviors.task_types, deadline=site.clock() + MINUTE, clock=site.clock))
    assert (swept, site.head(task_id)) == ([], before)


def test_a_resubmission_has_the_version_of_its_own_payload(site: Site) -> None:
    broken = replace(ADD_2, work=lambda _parameters, _run: None)
    task_id = site.client().submit(broken, ONE).task_id
    site.worker("new", broken).run_once()
    assert site.head(task_id).status is Status.FAILURE
    site.service().operators.retry(task_id)
    assert site.head(task_id).payload_version == 2
    site.service().operators.cancel(task_id)
    site.client().submit(ADD, ONE)
    assert site.head(task_id).payload_version == 1
    site.worker("new", ADD_2).run_once()
    assert site.head(task_id).status is Status.SUCCESS


def test_a_malformed_payload_of_a_known_version_is_a_failure(site: Site) -> None:
    task_id = site.store.apply(Create(submitted(task_type="ADD", task_payload='{"left": "much"}'))).task_id
    site.clock.advance(HOUR)
    site.worker("w", ADD).run_once()
    head = site.head(task_id)
    assert (head.status, head.error_code) == (Status.FAILURE, "MALFORMED_PAYLOAD")
    assert "left" in (head.result_summary or "")
    assert "much" not in (head.result_extended or "")


@pytest.mark.parametrize("unreadable", [True, False], ids=["unreadable", "unknown-type"])
@pytest.mark.parametrize("process", ["worker", "sweeper"])
def test_a_due_record_that_is_left_alone_is_read_once(site: Site, process: str, unreadable: bool) -> None:
    task_id = site.store.apply(Create(submitted(due_at=NOW, task_type="NEWER"))).task_id
    if unreadable:
        site.store.make_unreadable(task_id)
    left_alone, due_hints, read = LeftAlone(), DueHints(), []
    site.store.fault = read.append
    for _ in range(5):
        site.clock.advance(MINUTE)
        if process == "worker":
            assert lease_next_available_task(site.service(), "w", {"ADD"}, an_hour, due_hints=due_hints) is None
        else:
            deadline = site.clock() + MINUTE
            list(sweep(site.service(), {"ADD"}, deadline=deadline, clock=site.clock, left_alone=left_alone))
    assert read.count("before get") == 1


def test_a_task_that_was_left_alone_is_read_again_after_it_changed(site: Site) -> None:
    task_id = site.client().submit(ADD_2, ONE).task_id
    old = site.worker("old", ADD)
    assert old.run_once() is None
    site.clock.advance(timedelta(seconds=10))
    site.service().operators.cancel(task_id)
    site.client().submit(ADD, ONE)
    site.clock.advance(timedelta(seconds=10))
    assert old.run_once() is not None
