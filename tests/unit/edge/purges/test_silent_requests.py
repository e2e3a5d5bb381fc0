"""What holds for files outside the table when a request is silent, and what a request may ask for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.removal.purge.requests import Limits, options_of
from delegation.tasks.life.policy import InvalidProperty
from delegation.wire.tasks import TaskRecord
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World

STRANGER = "s3://lake/wh/strange/stats.puffin"


@pytest.fixture
def world() -> World:
    world = filled(World(), "orders")
    world.lake.objects["lake", STRANGER.removeprefix("s3://lake/")] = b"x"
    world.lake.rewrite_metadata("orders", {"statistics": [{"statistics-path": STRANGER, "file-size-in-bytes": 1}]})
    return world


def test_a_silent_request_for_a_table_with_files_outside_is_refused(world: World) -> None:
    before = set(world.lake.uris())
    answer = world.execute(world.body("orders"))
    assert (answer.status, json.loads(answer.body)["error_code"]) == (409, "PATHS_OUTSIDE_TABLE")
    assert set(world.lake.uris()) == before


def test_files_kept_and_findings_are_in_the_answer_and_in_the_task(world: World) -> None:
    answer = world.execute(world.body("orders", outside="keep"))
    result = json.loads(answer.body)["execution_result"]
    finding = {"code": "PATHS_OUTSIDE_TABLE", "count": 1}
    assert (result["files_kept"], result["findings"]) == (1, [finding])
    record = TaskRecord.of(world.tasks.reads.get(answer.task_id).public()).model_dump()
    assert record["files_kept"] == 1
    assert [dict(one) for one in record["findings"]] == [finding]


VALUES = st.sampled_from(["refuse", "keep", "delete"])


@given(VALUES, VALUES, VALUES)
def test_no_request_gets_a_looser_value_than_the_loosest(silent: str, loosest: str, asked: str) -> None:
    order = ["refuse", "keep", "delete"]
    properties = {"delegation.purge.outside": silent, "delegation.purge.outside-loosest": loosest}
    if order.index(silent) > order.index(loosest):
        with pytest.raises(InvalidProperty):
            Limits.from_properties(properties)
        return
    limits = Limits.from_properties(properties)
    assert options_of({}, limits).outside == silent
    if order.index(asked) > order.index(loosest):
        with pytest.raises(DelegationError, check=coded("PROPERTY_NOT_ALLOWED")):
            options_of({"outside": asked}, limits)
    got = options_of({"outside": asked}, limits, accepted=True).outside
    assert got == min(asked, loosest, key=order.index)
