"""The plan of a scan or a removal, read with the operator's own AWS credentials."""

import re
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError
from delegation.cli.orphans.restore import plans_of
from delegation.operations.orphans.index import OrphanIndex, load_plan
from delegation.storage.base import PlanStore
from delegation.timestamps import isoformat
from delegation.worksets.errors import PlanTampered
from delegation.worksets.index import segment_of
from polaris_common.errors import printable

_PLAN: Final = re.compile(
    r"(?:s3://(?P<bucket>[^/]+)/)?(?P<plan>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]+/[0-9a-f]+)"
    r"(?:/receipt\.json)?"
)
PlanArgument = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        show_default=False,
        help="The id of the plan of a scan or a removal, or the key or s3:// address of the removal's receipt.",
    ),
]


def opened_plan(connection: Connection, text: str, plan_bucket: str | None) -> tuple[PlanStore, OrphanIndex]:
    """Return the plans and the index of a plan; raises BadParameter and CommandError."""
    named = _PLAN.fullmatch(text)
    if named is None:
        raise typer.BadParameter("must be a plan's id, or a receipt's key", param_hint="PLAN")
    bucket = named["bucket"] or plan_bucket or connection.settings.get("plan_bucket")
    plans = plans_of(connection, bucket)
    return plans, _index(plans, named["plan"])


def _plan_unknown(plan: str, reason: str) -> CommandError:
    """Return the error: there is no such plan any more, or it is only a listing."""
    return CommandError(
        f"{printable(plan)}: {printable(reason)}",
        "Have the table scanned again (`delegation orphans scan`) and name the plan that it shows.",
        code="PLAN_NOT_FOUND",
    )


def _index(plans: PlanStore, plan: str) -> OrphanIndex:
    try:
        index = load_plan(plans, segment_of(plans, plan))
    except PlanTampered as error:
        raise _plan_unknown(plan, str(error)) from error
    if index.stage == "listed":
        raise _plan_unknown(plan, "it is a listing, which was not compared with what tables need")
    return index


def time_text(seconds: int) -> str:
    """Return a time of the store, given in seconds since 1970."""
    return isoformat(datetime.fromtimestamp(seconds, UTC))
