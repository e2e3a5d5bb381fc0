"""Polaris: whether it is reachable, and whether the service's principal has what a purge in a namespace needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from delegation.cli.catalog.polaris import PURGES_VIEWS, RENAME_INTO, are_droppable, gives
from delegation.cli.doctor.checks import CheckResult, failed, not_checked, passed
from delegation.polaris.answers import (
    NoSuchCatalog,
    NoSuchNamespace,
    PolarisError,
    PolarisForbidden,
    PolarisMisconfigured,
    PolarisUnauthorized,
    PolarisUnavailable,
)
from delegation.polaris.client import PolarisClient
from delegation.polaris.management import PolarisGrant, PolarisManagement
from polaris_common.errors import shown

POLARIS: Final = "Polaris"
NAMESPACE: Final = "namespace"
PRINCIPAL: Final = "principal"
VIEWS: Final = "views"
GRANTS: Final = "grants"
_NO_CATALOG: Final = "Polaris has no such catalog"
CATALOG: Final = "catalog"
NAMES: Final = "names"
ENDPOINTS: Final = "endpoints"
UNIQUE_LOCATION: Final = "polaris.config.default-unique-table-location.enabled"


@dataclass(frozen=True, slots=True)
class CatalogCheck:
    """Checks a namespace of a catalog as the principal whose credential `credential` names."""

    client: PolarisClient
    url: str
    credential: str
    catalog: str | None = None
    namespace: tuple[str, ...] = ()

    def findings(self) -> Iterator[CheckResult]:
        try:
            self.client.sign_in()
        except PolarisError as error:
            yield polaris_failure(POLARIS, self.url, self.credential, error)
            return
        yield passed(POLARIS, f"{self.url} issues tokens for {self.credential}")
        if self.catalog is None:
            return
        place = ".".join((self.catalog, *self.namespace))
        try:
            unknown = self.client.unknown_endpoints(self.catalog)
            if self.namespace:
                number = sum(1 for _ in self.client.list_tables(self.catalog, self.namespace))
            else:
                number = sum(1 for _ in self.client.list_namespaces(self.catalog))
        except PolarisError as error:
            yield polaris_failure(NAMESPACE, self.url, self.credential, error, place=f"{place}: ")
            return
        if unknown:
            yield not_checked(
                ENDPOINTS,
                f"{self.catalog} advertises unknown endpoints of tables: {shown(unknown)}; a dropped table that they "
                "still serve counts as another table",
            )
        yield passed(NAMESPACE, f"{place}: {number} {'tables' if self.namespace else 'namespaces'} can be listed")


@dataclass(frozen=True, slots=True)
class ViewCheck:
    """Checks a catalog's type, whether names are used again, and whether views can be dropped."""

    management: PolarisManagement
    url: str
    catalog: str

    def findings(self) -> Iterator[CheckResult]:
        try:
            properties = self.management.properties_of(self.catalog)
            why = self.management.why_unsupported(self.catalog)
        except PolarisError as error:
            yield polaris_failure(VIEWS, self.url, "polaris_admin_credential", error)
            return
        if why is None:
            yield passed(CATALOG, f"{self.catalog} is INTERNAL, with storage that the service deletes from")
        else:
            yield failed(
                CATALOG,
                f"{self.catalog}: {why}",
                "Leave the catalog out. Drop its tables in the catalog that owns them.",
            )
        if properties.get(UNIQUE_LOCATION, "").lower() == "true":
            yield passed(NAMES, "a recreated table gets another location")
        else:
            yield not_checked(
                NAMES,
                f"{UNIQUE_LOCATION} is not true for {self.catalog}: a recreated table may get the dropped table's "
                "location, and its readers can then read files that are not deleted yet",
            )
        if are_droppable(properties):
            yield passed(VIEWS, f"views of {self.catalog} can be dropped")
        else:
            fix = f"`delegation polaris setup {self.catalog} --drop-views` sets {PURGES_VIEWS} = false."
            yield failed(VIEWS, f"nobody can drop a view of {self.catalog} (403)", fix)


@dataclass(frozen=True, slots=True)
class GrantCheck:
    """Checks the principal and its grants as an administrator sees them; `tombstones` is None without a gateway."""

    management: PolarisManagement
    url: str
    catalog: str
    principal: str
    needed: tuple[PolarisGrant, ...]
    tombstones: tuple[str, ...] | None = None

    def findings(self) -> Iterator[CheckResult]:
        setup = self._setup()
        try:
            if self.management.client_id_of(self.principal) is None:
                yield failed(PRINCIPAL, f"Polaris has no principal {self.principal}", f"Create it: `{setup}`.")
                yield from (not_checked(f"grant {grant.privilege}", "needs the principal") for grant in self.needed)
                return
            roles = self.management.principal_roles_of(self.principal)
            granted = [grant for role in sorted(roles) for grant in grants_of_role(self.management, self.catalog, role)]
        except PolarisError as error:
            yield polaris_failure(PRINCIPAL, self.url, "polaris_admin_credential", error)
            return
        yield passed(PRINCIPAL, f"{self.principal} with the roles {', '.join(sorted(roles)) or 'none'}")
        for grant in self.needed:
            # The exact grant, if there is one: the answer does not depend on the order in which they are listed.
            holding = [grant] if grant in granted else sorted((held for held in granted if gives(held, grant)), key=str)
            giving = next(iter(holding), None)
            if giving is not None:
                by = f", by {giving}" if giving != grant else ""
                yield passed(f"grant {grant.privilege}", f"held on {grant.place}{by}")
            else:
                place = "" if grant.namespace in {(), self.tombstones} else f" --namespace {'.'.join(grant.namespace)}"
                yield failed(f"grant {grant.privilege}", f"missing on {grant.place}", f"`{setup}{place}` adds it.")

    def _setup(self) -> str:
        tombstones = "" if self.tombstones is None else f" --tombstones {'.'.join(self.tombstones)}"
        return f"delegation polaris setup {self.catalog} --principal {self.principal}{tombstones}"


def grants_of_role(management: PolarisManagement, catalog: str, role: str) -> list[PolarisGrant]:
    """Return what a principal role may do in a catalog through all its catalog roles."""
    used = sorted(management.catalog_roles_of(role, catalog))
    return [grant for each in used for grant in management.grants_of(catalog, each)]


def unknown_catalog(name: str, place: str) -> CheckResult:
    return failed(name, f"{place}: {_NO_CATALOG}", "Check the name's first part, and polaris_url.")


def what_lacks(findings: Sequence[CheckResult]) -> str | None:
    """Return the missing requirement that would make every other check of a catalog fail too."""
    broken = {finding.name: finding.detail for finding in findings if finding.ok is False}
    if POLARIS in broken:
        return POLARIS
    return "the catalog" if broken.get(NAMESPACE, "").endswith(_NO_CATALOG) else None


def polaris_failure(name: str, url: str, credential: str, error: PolarisError, *, place: str = "") -> CheckResult:
    match error:
        case PolarisUnauthorized():
            return failed(name, f"{url} refuses the credential", f"Correct {credential}; its form is id:secret.")
        case PolarisMisconfigured():
            return failed(name, f"{error}", "Correct realm (DELEGATION_REALM) or polaris_scope.")
        case PolarisForbidden():
            fix = "Grant what the message names: `delegation polaris setup` grants all that the service needs."
            return failed(name, f"{place}the principal may not do this: {error}", fix)
        case NoSuchNamespace():
            return failed(name, f"{place}there is no such namespace", "Check the name: CATALOG.LEVEL.LEVEL.")
        case NoSuchCatalog():
            return unknown_catalog(name, place.removesuffix(": "))
        case PolarisUnavailable():
            return failed(name, f"{url} cannot be reached or failed: {error}", "Check polaris_url and the network.")
        case _:
            return failed(name, f"{url} does not answer like Polaris: {error}", "Correct polaris_url: …/api/catalog.")


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
        place = ".".join(self.namespace)
        setup = f"delegation polaris setup {self.catalog} --tombstones {place}"
        try:
            if not self.client.has_namespace(self.catalog, self.namespace):
                yield failed(TOMBSTONES, f"there is no namespace {self.catalog}.{place}", f"Create it: `{setup}`.")
                yield not_checked(CALLERS, "needs the namespace")
                return
            yield passed(TOMBSTONES, f"the namespace {self.catalog}.{place} exists")
            if not self.callers:
                yield not_checked(CALLERS, "with --callers, name the principal roles of users who drop tables")
            for role in self.callers:
                yield self._may_rename(role, f"{setup} --callers {role}")
        except PolarisError as error:
            yield polaris_failure(TOMBSTONES, self.url, "polaris_admin_credential", error)

    def _may_rename(self, role: str, setup: str) -> CheckResult:
        needed = PolarisGrant(RENAME_INTO, self.namespace)
        if not self.management.has_principal_role(role):
            return failed(
                CALLERS,
                f"there is no principal role {role}",
                "Check the name, or create the principal role in Polaris.",
            )
        giving = next(
            (held for held in grants_of_role(self.management, self.catalog, role) if gives(held, needed)), None
        )
        if giving is None:
            return failed(CALLERS, f"{role} lacks {needed}, so its drops are refused", f"`{setup}` adds it.")
        return passed(CALLERS, f"{role} may rename tables into the namespace, by {giving}")
