"""What dropping tables through the gateway needs in Polaris besides the service's own grants."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from delegation.cli.doctor.catalog import grants_of_role, polaris_failure
from delegation.cli.doctor.checks import CheckResult, failed, not_checked, passed
from delegation.cli.polaris.setup import gives
from delegation.cli.polaris.tombstones import RENAME_INTO
from delegation.polaris.client import PolarisClient
from delegation.polaris.errors import PolarisError
from delegation.polaris.management import PolarisGrant, PolarisManagement

TOMBSTONES: Final = "tombstones"
CALLERS: Final = "callers"


@dataclass(frozen=True, slots=True)
class TombstoneCheck:
    """Checks the tombstone namespace, and that the principal roles `callers` may rename tables into it."""

    management: PolarisManagement
    client: PolarisClient
    url: str
    catalog: str
    namespace: tuple[str, ...]
    callers: tuple[str, ...]

    def findings(self) -> Iterator[CheckResult]:
        """Yield the namespace, and each of the callers' roles."""
        place = ".".join(self.namespace)
        setup = f"delegation polaris setup {self.catalog} --tombstones {place}"
        try:
            if not self.client.has_namespace(self.catalog, self.namespace):
                yield failed(TOMBSTONES, f"there is no namespace {self.catalog}.{place}", f"Create it: `{setup}`.")
                yield not_checked(CALLERS, "needs the namespace")
                return
            yield passed(TOMBSTONES, f"the namespace {self.catalog}.{place} exists")
            if not self.callers:
                yield not_checked(CALLERS, "name the principal roles of those who drop tables with --callers")
            for role in self.callers:
                yield self._may_rename(role, f"{setup} --callers {role}")
        except PolarisError as error:
            yield polaris_failure(TOMBSTONES, self.url, "polaris_admin_credential", error)

    def _may_rename(self, role: str, setup: str) -> CheckResult:
        needed = PolarisGrant(RENAME_INTO, self.namespace)
        if not self.management.has_principal_role(role):
            return failed(CALLERS, f"there is no principal role {role}", "Check the name, or create it in Polaris.")
        giving = next((one for one in grants_of_role(self.management, self.catalog, role) if gives(one, needed)), None)
        if giving is None:
            return failed(CALLERS, f"{role} lacks {needed}, so its drops are refused", f"`{setup}` adds it.")
        return passed(CALLERS, f"{role} may rename tables into it, by {giving}")
