"""Client of Polaris' policies: their contents, where they are attached, and what applies to a catalog, namespace or
table. Source: Apache Polaris, policy-apis.yaml and PolicyCatalogHandler. Polaris stores policies and executes none."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx

from delegation.identifiers import TableIdentifier, encoded
from delegation.polaris.answers import (
    NoSuchCatalog,
    NoSuchNamespace,
    NoSuchTable,
    PolarisError,
    PolarisForbidden,
    PolarisOutcomeUnknown,
    PolarisUnexpectedAnswer,
    PoliciesNotSupported,
    TableAlreadyExists,
    json_object,
)
from delegation.polaris.requests import CatalogRequests, each_named, error_in

MOST_APPLICABLE: Final = 1_000
"""Policies that one table, namespace or catalog may have; Polaris has one of each of its types."""
_MOST_PAGES: Final = 100
_NO_SUCH_API: Final = frozenset({400, 404, 405, 406})
_NOT_MAPPED: Final = "POLICY_MAPPING_NOT_FOUND"
"""Polaris' message instead of NoSuchMappingException, with status 500 (PolicyCatalog, detachPolicy)."""


@dataclass(frozen=True, slots=True, order=True)
class PolicyIdentifier:
    """A policy's identifier: catalog, at least one namespace level, name."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.namespace, self.name))


@dataclass(frozen=True, slots=True)
class PolicyTarget:
    """What a policy is attached to: a catalog (no namespace), a namespace (no table) or a table."""

    catalog: str
    namespace: tuple[str, ...] = ()
    table: str | None = None

    @classmethod
    def of(cls, table: TableIdentifier) -> "PolicyTarget":
        return cls(table.catalog, table.namespace, table.name)

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.namespace, *((self.table,) if self.table is not None else ())))

    def document(self) -> dict[str, Any]:
        if self.table is not None:
            return {"type": "table-like", "path": [*self.namespace, self.table]}
        return {"type": "namespace" if self.namespace else "catalog", "path": list(self.namespace)}


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy as Polaris stores it; `content` is what its owner wrote, for its type a JSON document in a string."""

    type: str
    name: str
    content: str
    version: int
    description: str = ""
    inheritable: bool = True


@dataclass(frozen=True, slots=True)
class ApplicablePolicy:
    """A policy that applies to a target; `inherited` from a namespace or catalog above it. One of a policy file is
    `of_file`, and in no namespace."""

    policy: StoredPolicy
    namespace: tuple[str, ...]
    inherited: bool
    of_file: bool = False


class PolicyClient:
    """Reads, changes and attaches policies as the token's principal; thread-safe. Methods raise NoSuchCatalog,
    PoliciesNotSupported and the errors of CatalogRequests besides those they name; a change also PolarisOutcomeUnknown
    if it may have been made."""

    def __init__(self, requests: CatalogRequests) -> None:
        self._requests = requests

    def list_policies(
        self, catalog: str, namespace: tuple[str, ...], type_: str | None = None
    ) -> Iterator[PolicyIdentifier]:
        """Yield the policies of one namespace, by default of any type. Raises NoSuchNamespace, and after all others
        PolarisUnexpectedAnswer for one without a name."""
        path = f"polaris/{self._requests.catalog(catalog).namespace_path(namespace)}/policies"
        params = {} if type_ is None else {"policyType": type_}

        def named(entry: Any) -> PolicyIdentifier:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not name:
                raise PolarisUnexpectedAnswer("Polaris listed a policy without a name", status=200)
            return PolicyIdentifier(catalog, namespace, name)

        yield from each_named(self._pages(path, params, "identifiers"), named)

    def create(self, identifier: PolicyIdentifier, type_: str, content: str, description: str = "") -> StoredPolicy:
        """Create a policy. Raises NoSuchNamespace, PolarisError (POLICY_ALREADY_EXISTS, POLICY_REFUSED)."""
        path = f"polaris/{self._requests.catalog(identifier.catalog).namespace_path(identifier.namespace)}/policies"
        document = {"name": identifier.name, "type": type_, "description": description, "content": content}
        try:
            return _policy_in(self._send("POST", path, document))
        except TableAlreadyExists as error:
            raise PolarisError(
                str(error), status=409, error_type=error.error_type, code="POLICY_ALREADY_EXISTS"
            ) from error

    def load(self, identifier: PolicyIdentifier) -> StoredPolicy:
        """Return a policy. Raises PolarisError (NO_SUCH_POLICY), NoSuchNamespace."""
        return _policy_in(self._send("GET", self._path(identifier)))

    def update(
        self, identifier: PolicyIdentifier, content: str, *, version: int, description: str = ""
    ) -> StoredPolicy:
        """Replace the content of a policy that still has `version`; return its next version. Raises PolarisError
        (NO_SUCH_POLICY, POLICY_CHANGED, POLICY_REFUSED)."""
        document = {"description": description, "content": content, "current-policy-version": version}
        try:
            return _policy_in(self._send("PUT", self._path(identifier), document))
        except PolarisError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            # Whatever type a release gives the loser of a race.
            raise PolarisError(str(error), status=409, error_type=error.error_type, code="POLICY_CHANGED") from error

    def delete(self, identifier: PolicyIdentifier, *, detach_all: bool = False) -> None:
        """Delete a policy; unless `detach_all` it must be attached nowhere. Raises PolarisError (NO_SUCH_POLICY,
        POLICY_IN_USE)."""
        self._send("DELETE", self._path(identifier), params={"detach-all": str(detach_all).lower()})

    def attach(
        self, identifier: PolicyIdentifier, target: PolicyTarget, parameters: Mapping[str, str] | None = None
    ) -> None:
        """Attach a policy; a repeat changes only the parameters. Raises NoSuchNamespace, NoSuchTable, PolarisError
        (NO_SUCH_POLICY, POLICY_TYPE_ATTACHED, POLICY_NOT_ATTACHABLE)."""
        document = {"target": target.document(), "parameters": dict(parameters or {})}
        self._send("PUT", f"{self._path(identifier)}/mappings", document)

    def detach(self, identifier: PolicyIdentifier, target: PolicyTarget) -> None:
        """Detach a policy. A success is read back if the principal may read what applies to the target. Raises
        NoSuchNamespace, NoSuchTable, PolarisError (NO_SUCH_POLICY, POLICY_NOT_ATTACHED, POLICY_STILL_ATTACHED)."""
        self._detach(identifier, target)
        if self._is_attached(identifier, target):
            # Releases up to 1.7 on a database may answer success and change nothing.
            self._detach(identifier, target)
            if self._is_attached(identifier, target):
                raise PolarisError(
                    f"the catalog confirmed that {identifier} was detached from {target}, but it is still attached",
                    status=200,
                    code="POLICY_STILL_ATTACHED",
                )

    def _is_attached(self, identifier: PolicyIdentifier, target: PolicyTarget) -> bool:
        """Return whether the catalog shows a policy as attached to a target; False if that cannot be read."""
        try:
            policies = self.applicable(target)
        except (PolarisForbidden, NoSuchTable, NoSuchNamespace):
            return False
        return any(
            (attached.namespace, attached.policy.name) == (identifier.namespace, identifier.name)
            and not attached.inherited
            for attached in policies
        )

    def _detach(self, identifier: PolicyIdentifier, target: PolicyTarget) -> None:
        try:
            self._send("POST", f"{self._path(identifier)}/mappings", {"target": target.document()})
        except PolarisOutcomeUnknown as error:
            if _NOT_MAPPED in (error.answered or ""):
                raise PolarisError(
                    str(error), status=error.status, error_type=error.error_type, code="POLICY_NOT_ATTACHED"
                ) from error
            raise

    def applicable(self, target: PolicyTarget, type_: str | None = None) -> list[ApplicablePolicy]:
        """Return the attached and inherited policies of a target; like Polaris, the nearest of each inheritable type.
        Raises NoSuchTable, NoSuchNamespace, and PolarisUnexpectedAnswer for more than MOST_APPLICABLE."""
        catalog = self._requests.catalog(target.catalog)
        params = {} if type_ is None else {"policyType": type_}
        if target.namespace:
            params["namespace"] = catalog.joined(target.namespace)
        if target.table is not None:
            params["target-name"] = target.table
        path = f"polaris/{catalog.prefixed}applicable-policies"
        entries = list(itertools.islice(self._pages(path, params, "applicable-policies"), MOST_APPLICABLE + 1))
        if len(entries) > MOST_APPLICABLE:
            raise PolarisUnexpectedAnswer(f"Polaris returned more than {MOST_APPLICABLE} policies of {target}")
        policies = [_applicable_in(entry) for entry in entries]
        # Polaris ignores a type that it does not know, and returns all.
        return [policy for policy in policies if type_ in {None, policy.policy.type}]

    def _path(self, identifier: PolicyIdentifier) -> str:
        namespace = self._requests.catalog(identifier.catalog).namespace_path(identifier.namespace)
        return f"polaris/{namespace}/policies/{encoded(identifier.name)}"

    def _pages(self, path: str, params: dict[str, str], field: str) -> Iterator[Any]:
        pages = itertools.count(1)

        def bounded() -> None:
            if next(pages) > _MOST_PAGES:
                raise PolarisUnexpectedAnswer(f"Polaris returned more than {_MOST_PAGES} pages of {field}", status=200)

        try:
            yield from self._requests.pages(path, params, field, bounded)
        except PolarisError as error:
            if _has_no_api(error):
                raise _not_supported(error) from error
            raise

    def _send(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        params: dict[str, str] | None = None,
    ) -> httpx.Response:
        response = self._requests.send(method, path, params or {}, {}, document)
        if not response.is_success:
            error = error_in(response)
            raise _not_supported(error) if _has_no_api(error) else error
        return response


def _has_no_api(error: PolarisError) -> bool:
    """Return whether an error is that of a server without policies. The catalog is known by then, so a
    NotFoundException is about the path. Polaris has its own types for errors of a request, except BadRequestException
    for a type of policies that it does not know."""
    if error.status == HTTPStatus.NOT_IMPLEMENTED:
        return True
    if error.status == HTTPStatus.BAD_REQUEST and (error.answered or "").startswith("Unknown policy type"):
        return False
    return error.status in _NO_SUCH_API and type(error) in {NoSuchCatalog, PolarisUnexpectedAnswer}


def _not_supported(error: PolarisError) -> PoliciesNotSupported:
    reason = f"the catalog does not offer policies ({error})"
    return PoliciesNotSupported(reason, status=error.status, error_type=error.error_type, answered=error.answered)


def _policy_in(response: httpx.Response) -> StoredPolicy:
    return _stored_in(json_object(response).get("policy"))


def _stored_in(entry: Any) -> StoredPolicy:
    match entry:
        case {"policy-type": str(type_), "name": str(name), "version": int(version)} if (
            type_ and name and not isinstance(version, bool)
        ):
            content, description = entry.get("content"), entry.get("description")
            return StoredPolicy(
                type=type_,
                name=name,
                content=content if isinstance(content, str) else "",
                version=version,
                description=description if isinstance(description, str) else "",
                inheritable=entry.get("inheritable") is not False,
            )
        case _:
            raise PolarisUnexpectedAnswer("Polaris returned a policy without a valid type, name or version", status=200)


def _applicable_in(entry: Any) -> ApplicablePolicy:
    policy = _stored_in(entry)
    namespace = entry.get("namespace")
    levels = namespace if isinstance(namespace, list) and all(isinstance(level, str) for level in namespace) else []
    return ApplicablePolicy(policy, tuple(levels), entry.get("inherited") is True)
