"""Expiries whose files executors delete, on a real session whose workers are separate processes."""

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from delegation.removal.chunks import DeleteStep
from delegation.removal.expiry.run import expire_snapshots
from tests.faults.crashes.expiry_matrix import Executors, names_left
from tests.faults.crashes.switch import DRIVER, EXECUTOR, StoreServer, Switch
from tests.spark_sessions import spark_session
from tests.unit.removal.expiry.test_orders import (
    COMPARE_REFS,
    Story,
    add_files,
)

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def executors() -> Iterator[Executors]:
    with spark_session("local[2]") as session, StoreServer() as server:
        session.sparkContext.setLogLevel("OFF")  # Spark logs pages for each killed worker
        yield Executors(session.sparkContext, server)


def test_executors_delete_what_the_inline_engine_deletes_and_the_receipt_is_the_same(executors: Executors) -> None:
    inline, story, switch = Story(), Story(), Switch()
    by_inline = expire_snapshots(inline.world.context(inline.table))

    result = executors.expire(story, switch)

    assert result.engine == "spark"
    assert names_left(story) == names_left(inline)
    assert story.world.commits() == 1
    deletes = [call for call in switch.made if call.name == "delete"]
    chunks = [call for call in switch.made if call.name == "plan put" and call.subject.endswith(".jsonl.gz")]
    manifests = [call for call in switch.made if call.name == "read" and "/metadata/m" in call.subject]
    for calls in (deletes, chunks, manifests):
        assert {call.side for call in calls} == {EXECUTOR}
    assert (result.files_deleted, result.bytes_deleted, result.snapshot_ids) == (
        by_inline.files_deleted,
        by_inline.bytes_deleted,
        by_inline.snapshot_ids,
    )
    receipts = [
        json.loads(world.plans.get(str(one.receipt)))
        for world, one in ((inline.world, by_inline), (story.world, result))
    ]
    same = {"status", "files_planned", "files_deleted", "bytes_deleted", "by_type", "snapshots_removed", "refs_removed"}
    assert {name: receipts[0][name] for name in same} == {name: receipts[1][name] for name in same}
    assert receipts[0].keys() == receipts[1].keys()
    assert [one["engine"] for one in receipts] == ["inline", "spark"]


@pytest.mark.long
def test_steps_are_deleted_one_after_the_other_with_a_load_before_each(executors: Executors) -> None:
    story, switch = Story(), Switch()
    executors.expire(story, switch)
    steps = {chunk.name: chunk.step for chunk in story.world.plan().chunks}
    order: list[str] = []
    for call in switch.made:
        name = call.subject.rpartition("/")[2]
        if call.side == EXECUTOR and call.name == "plan put" and "/done/" in call.subject and name in steps:
            order.append(str(steps[name]))
        elif call.side == DRIVER and call.name == "load":
            order.append("load")
    wanted = [DeleteStep.DATA, DeleteStep.META, DeleteStep.LISTS]
    assert list(dict.fromkeys(one for one in order if one != "load")) == [str(step) for step in wanted]
    for step in wanted:
        assert order[order.index(str(step)) - 1] == "load"


@pytest.mark.long
def test_what_is_spread_to_see_if_anything_is_needed_is_not_read_again_to_write_the_rest(executors: Executors) -> None:
    story, switch = Story(), Switch()
    executors.expire(story, switch, **{f"call_{COMPARE_REFS}": partial(add_files, story)})
    check_shared(story)
    kept = story.table.manifests_of(story.table.refs["main"])
    reads = Counter(call.subject for call in switch.made if call.name == "read" and call.side == EXECUTOR)
    # Once for the plan, and once after the commit.
    assert [reads[uri] for uri in kept] == [2] * len(kept)


def check_shared(story: Story) -> None:
    """Check that the plan was reduced by the file that another table took."""
    index = story.world.plan()
    assert len(index.reduces) == 1
    assert [(one.code, one.count, one.sample) for one in index.findings] == [("FILES_SHARED", 1, (story.of_old[0],))]
    assert story.of_old[0] in story.lake.uris()


@pytest.mark.long
def test_killed_at_a_call_of_driver_or_executor_the_next_attempt_finishes_the_same_plan(executors: Executors) -> None:
    """Every thirtieth call; `python -m tests.faults.crashes.expiry_matrix` kills each."""
    tally = executors.play(step=30)
    assert tally.wrong == []
    assert tally.ends.total() >= 4
