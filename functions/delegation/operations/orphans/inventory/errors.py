"""Errors of an S3 Inventory report that is to be read instead of a listing; nothing was deleted with any of them."""

from delegation.errors import GuardRefused
from delegation.operations.orphans.errors import OrphansError
from polaris_common.errors import printable


def inventory_refused(report: str, why: str) -> GuardRefused:
    """Return the error: a report is not of what is at the table's location, or in a form that is not read."""
    return GuardRefused(
        f"orphan files are not taken from the inventory report {printable(report)}: {why}", code="INVENTORY_REFUSED"
    )


def inventory_damaged(what: str, why: str) -> OrphansError:
    """Return the error: a report is cut short, altered, or does not state what its manifest states."""
    return OrphansError(
        f"the inventory report cannot be trusted: {printable(what)} {why}. Nothing was deleted; name another "
        "report, or leave the option out and let the service list the location",
        code="INVENTORY_DAMAGED",
    )
