"""Errors of an S3 Inventory report that is to be read instead of a listing; nothing was deleted with any of them."""

from delegation.errors import GuardRefused, printable
from delegation.operations.orphans.errors import OrphansError


class InventoryRefused(GuardRefused):
    """A report is not of what is at the table's location, or in a form that is not read."""

    code = "INVENTORY_REFUSED"

    def __init__(self, report: str, why: str) -> None:
        super().__init__(f"orphan files are not taken from the inventory report {printable(report)}: {why}")


class InventoryDamaged(OrphansError):
    """A report is cut short, altered, or does not say what its manifest says."""

    code = "INVENTORY_DAMAGED"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"the inventory report cannot be trusted: {printable(what)} {why}. Nothing was deleted; name another "
            "report, or leave the option out and let the service list the location"
        )
