"""The summary of a task of orphan files, which says what may be done next and nothing that would do nothing."""

from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.removal.orphans.behavior import success
from delegation.removal.orphans.context import ForeignKept, OrphanResult, Status

ORDERS = TableIdentifier("lake", ("sales",), "orders")
PLAN = "task/1/ab12"


def summary(status: Status, files: int, **more: Any) -> str:
    found = OrphanResult(
        status=status,
        identifier=ORDERS,
        table_uuid="u",
        location="s3://lake/orders/",
        plan_ids=(PLAN,),
        files_listed=47,
        files_planned=files,
        bytes_planned=10 * files,
        bytes_listed=1000,
        **more,
    )
    return success(found, None)[0]


def test_a_plan_with_files_names_the_command_that_executes_it() -> None:
    expected = (
        "found 2 orphan files, 20 bytes, of 47 objects at s3://lake/orders/; nothing was deleted. "
        "`delegation orphans approve task/1/ab12` deletes them"
    )
    assert summary("PLANNED", 2) == expected


def test_a_plan_without_files_needs_no_approval() -> None:
    assert summary("PLANNED", 0) == summary("NOTHING", 0) == "no orphan files among 47 objects at s3://lake/orders/"


def test_tables_that_no_catalog_lists_are_named_with_what_stays_for_them() -> None:
    foreign = [ForeignKept(f"u{one}", "s3://lake/orders/x/", files=2, bytes=30) for one in range(5)]
    text = summary("PLANNED", 0, foreign=foreign)
    at = "at s3://lake/orders/x/ (2 files, 30 bytes)"
    assert f": u0 {at}, u1 {at}, u2 {at} and 2 others" in text
    assert f"`delegation orphans approve {PLAN} --including UUID`" in text
    assert summary("SWEPT", 1, foreign=foreign[:1]).endswith(f"; files of unlisted tables stay: u0 {at}")
