"""Upgrade and downgrade with tasks in flight on one DynamoDB Local (`make upgrade-both-ways` prints the table)."""

from pathlib import Path

import pytest

from infra.local.aws.dynamodb import DynamoDbLocal
from infra.local.errors import UnavailableError
from tests.golden import upgrade
from tests.golden.test_moments import files_of_events
from tests.golden.upgrade import WAYS, wrong_with
from tests.paths import ROOT

GOOD = {"statuses": ["SUCCESS"], "deleted": ["a", "b"], "attempts": [1]}


@pytest.mark.long
@pytest.mark.dynamodb_local
@pytest.mark.parametrize("way", WAYS)
def test_tasks_in_flight_survive_the_other_release(way: str, tmp_path: Path) -> None:
    try:
        with upgrade.former_tree() as tree:
            server = DynamoDbLocal(log=tmp_path / "dynamodb.log").start()
            try:
                left, ended = upgrade.go_way(way, {upgrade.FORMER: tree, upgrade.TODAY: ROOT}, server.url)
            finally:
                server.stop()
    except UnavailableError as error:
        pytest.skip(str(error))
    assert len(left) > 10
    assert wrong_with(left, ended, files_of_events()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"statuses": ["FAILURE"]}, "FAILURE"),
        ({"statuses": []}, "1 tasks before, 0 afterwards"),
        ({"statuses": ["SUCCESS", "SUCCESS"]}, "1 tasks before, 2 afterwards"),
        ({"deleted": ["a"]}, "1 files are gone, not the table's 2"),
        ({"deleted": ["a", "b", "c"]}, "3 files are gone, not the table's 2"),
    ],
)
def test_what_is_lost_or_deleted_too_much_is_wrong(changed: dict[str, list[str]], said: str | None) -> None:
    found = wrong_with({"queued": {"task_count": 1}}, {"queued": {**GOOD, **changed}}, ["a", "b"])
    assert (said in "; ".join(found)) if said else found == []
    assert wrong_with({"queued": {"task_count": 1}}, {}, []) == ["queued: nothing came of it"]
