"""Errors of an S3 Inventory report that is to be read instead of a listing; nothing was deleted with any of them."""

from typing import Final

from delegation.errors import DelegationError, GuardRefused, printable
from delegation.operations.orphans.errors import OrphansError
from delegation.tasks.submission.options import PLACE

INVENTORY: Final = "inventory"
"""The option that names a report's `manifest.json`."""


class InventoryNotAllowed(DelegationError):
    """A request names a report that is not below a place which the operator allows."""

    code = "PROPERTY_NOT_ALLOWED"

    def __init__(self, report: str) -> None:
        super().__init__(
            f"{PLACE}.{INVENTORY}: {printable(report)} is below no place of this service's setting "
            "delegation.orphan-files.inventories; name a report that is, or leave the option out"
        )
        self.name = INVENTORY


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
