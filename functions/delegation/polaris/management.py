"""Client of Polaris' management API: principals, roles, their assignments, and grants (Apache Polaris,
polaris-management-service.yml); and the rotation of the secret of the service's principal.

Rotation: AWS Secrets Manager user guide, "Lambda rotation functions". Polaris itself makes the new secret and returns
it once (`POST principals/{name}/rotate`, which only the principal may call), so `createSecret` does that, and
`setSecret` nothing. Polaris keeps the former secret valid until the next rotation (apache/polaris, class
PolarisPrincipalSecrets): a reader of AWSCURRENT always works. A second rotation ends the former secret at once, so one
with an unknown outcome is not repeated: the stored secret still works, and would not after another lost answer. The
label BEGUN marks a version from which a rotation was begun.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from delegation.identifiers import encoded
from delegation.polaris.answers import (
    TOKEN_REFUSED,
    PolarisError,
    PolarisMisconfigured,
    PolarisOutcomeUnknown,
    PolarisUnauthorized,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
    SecretOutcomeUnknown,
    TableAlreadyExists,
    error_of,
    json_object,
    why_unsupported,
)
from delegation.polaris.requests import ClientCredentials, TokenSource, accepting_json, subject_of
from delegation.polaris.settings import PENDING, credentials_of
from delegation.polaris.transport import Transport

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError


@dataclass(frozen=True, slots=True, order=True)
class PolarisGrant:
    """A privilege on a catalog (no namespace) or on one of its namespaces."""

    privilege: str
    namespace: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"namespace {'.'.join(self.namespace)}" if self.namespace else "the catalog"

    def __str__(self) -> str:
        return f"{self.privilege} on {self.place}"

    def resource(self) -> Mapping[str, Any]:
        if not self.namespace:
            return {"type": "catalog", "privilege": self.privilege}
        return {"type": "namespace", "namespace": list(self.namespace), "privilege": self.privilege}


class PolarisManagement:
    """Reads and changes principals, roles and grants as the token's principal, an administrator. `base_url` ends with
    `/api/management/v1`. Methods raise PolarisUnavailable, PolarisUnauthorized, PolarisForbidden and
    PolarisUnexpectedAnswer, and NoSuchCatalog for a name that does not exist."""

    def __init__(
        self, base_url: str, token: TokenSource, *, realm: str | None = None, transport: Transport | None = None
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._headers = accepting_json(realm)
        self._transport = transport or Transport()

    def has_catalog(self, catalog: str) -> bool:
        return self._find(f"catalogs/{encoded(catalog)}") is not None

    def properties_of(self, catalog: str) -> Mapping[str, str]:
        return _properties(self._find(f"catalogs/{encoded(catalog)}") or {})

    def why_unsupported(self, catalog: str) -> str | None:
        """Return why the service cannot delete tables of a catalog, None if it can; see `answers.why_unsupported`."""
        return why_unsupported(self._find(f"catalogs/{encoded(catalog)}") or {})

    def set_property(self, catalog: str, name: str, value: str) -> None:
        """Set one property of a catalog and keep the others; raises PolarisError if another change came between."""
        path = f"catalogs/{encoded(catalog)}"
        found = self._find(path) or {}
        properties = {**_properties(found), name: value}
        self._change("PUT", path, {"currentEntityVersion": found.get("entityVersion"), "properties": properties})

    def client_id_of(self, principal: str) -> str | None:
        found = self._find(f"principals/{encoded(principal)}")
        return None if found is None else str(found.get("clientId") or "")

    def create_principal(self, principal: str) -> ClientCredentials:
        """Create a principal; its secret cannot be read again."""
        body = {"principal": {"name": principal}, "credentialRotationRequired": False}
        return _credentials(self._change("POST", "principals", body))

    def reset_secret(self, principal: str) -> ClientCredentials:
        """Give a principal a new secret; the former one ends at once. Only root may."""
        return _credentials(self._change("POST", f"principals/{encoded(principal)}/reset", {}))

    def rotate_secret(self, principal: str) -> ClientCredentials:
        """Give the token's own principal a new secret; the former one stays valid until the next rotation. Raises
        PolarisOutcomeUnknown if it may have got one and no answer came."""
        return _credentials(self._change("POST", f"principals/{encoded(principal)}/rotate", {}))

    def has_principal_role(self, role: str) -> bool:
        return self._find(f"principal-roles/{encoded(role)}") is not None

    def create_principal_role(self, role: str) -> None:
        """Create a principal role; one that exists is kept."""
        self._create("principal-roles", {"principalRole": {"name": role}})

    def principal_roles_of(self, principal: str) -> frozenset[str]:
        return self._names(f"principals/{encoded(principal)}/principal-roles")

    def assign_principal_role(self, principal: str, role: str) -> None:
        self._change("PUT", f"principals/{encoded(principal)}/principal-roles", {"principalRole": {"name": role}})

    def has_catalog_role(self, catalog: str, role: str) -> bool:
        return self._find(f"{_roles(catalog)}/{encoded(role)}") is not None

    def create_catalog_role(self, catalog: str, role: str) -> None:
        """Create a role of a catalog; one that exists is kept."""
        self._create(_roles(catalog), {"catalogRole": {"name": role}})

    def catalog_roles_of(self, principal_role: str, catalog: str) -> frozenset[str]:
        return self._names(f"principal-roles/{encoded(principal_role)}/catalog-roles/{encoded(catalog)}")

    def assign_catalog_role(self, principal_role: str, catalog: str, role: str) -> None:
        path = f"principal-roles/{encoded(principal_role)}/catalog-roles/{encoded(catalog)}"
        self._change("PUT", path, {"catalogRole": {"name": role}})

    def grants_of(self, catalog: str, role: str) -> frozenset[PolarisGrant]:
        found = self._find(f"{_roles(catalog)}/{encoded(role)}/grants")
        entries = [] if found is None else _listed(found, "grants")
        return frozenset(
            PolarisGrant(str(entry.get("privilege")), _levels(entry))
            for entry in entries
            if entry.get("type") in ("catalog", "namespace")
        )

    def grant(self, catalog: str, role: str, grant: PolarisGrant) -> None:
        self._change("PUT", f"{_roles(catalog)}/{encoded(role)}/grants", {"grant": grant.resource()})

    def _names(self, path: str) -> frozenset[str]:
        found = self._find(path)
        return frozenset() if found is None else frozenset(str(entry.get("name")) for entry in _listed(found, "roles"))

    def _find(self, path: str) -> Mapping[str, Any] | None:
        response = self._send("GET", path, None)
        if response.status_code == 404:
            return None
        if not response.is_success:
            raise error_of(response, secrets=[_sent_token(response)])
        return json_object(response)

    def _create(self, path: str, body: Mapping[str, Any]) -> None:
        # Another process may have created it since it was looked for: 409 is what was wanted.
        try:
            self._change("POST", path, body)
        except TableAlreadyExists:
            return

    def _change(self, method: str, path: str, body: Mapping[str, Any]) -> httpx.Response:
        response = self._send(method, path, body)
        if not response.is_success:
            raise error_of(response, write=True, secrets=[_sent_token(response)])
        return response

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        def once(token: str) -> httpx.Response:
            return self._transport.send(
                method,
                f"{self._base_url}/{path}",
                idempotent=method == "GET",
                headers={**self._headers, "Authorization": f"Bearer {token}"},
                document=body,
            )

        token = self._token.token()
        response = once(token)
        if response.status_code in TOKEN_REFUSED:
            response = once(self._token.replace(token))
        if response.status_code in TOKEN_REFUSED:
            raise PolarisUnauthorized("Polaris refused a fresh token of the administrator", status=401)
        return response


class OwnPrincipal:
    """The principal of a token source, which needs no privilege to rotate its own secret; see RotatingPrincipal."""

    def __init__(self, management: PolarisManagement, token: TokenSource) -> None:
        self._management = management
        self._token = token

    def sign_in(self) -> None:
        self._token.token()

    def rotate(self) -> ClientCredentials:
        return self._management.rotate_secret(subject_of(self._token.token()))


def management_url(catalog_url: str) -> str:
    """Return the address of the management API of the Polaris that serves a catalog's `uri`."""
    parts = urlsplit(catalog_url)
    root = parts.path.rstrip("/").removesuffix("/api/catalog")
    return f"{parts.scheme}://{parts.netloc}{root}/api/management/v1"


def _properties(catalog: Mapping[str, Any]) -> dict[str, str]:
    given = catalog.get("properties")
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}


def _roles(catalog: str) -> str:
    return f"catalogs/{encoded(catalog)}/catalog-roles"


def _sent_token(response: httpx.Response) -> str:
    sent: str = response.request.headers.get("Authorization", "")
    return sent.removeprefix("Bearer ")


def _listed(body: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    entries = body.get(field)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise PolarisUnexpectedAnswer(f"Polaris answered with unusable {field}", status=200)
    return entries


def _levels(grant: Mapping[str, Any]) -> tuple[str, ...]:
    levels = grant.get("namespace") or []
    if not isinstance(levels, list) or not all(isinstance(level, str) for level in levels):
        raise PolarisUnexpectedAnswer("Polaris answered with a grant on an unusable namespace", status=200)
    return tuple(levels)


def _credentials(response: httpx.Response) -> ClientCredentials:
    match json_object(response):
        case {"credentials": {"clientId": str(client_id), "clientSecret": str(secret)}} if client_id and secret:
            return ClientCredentials(client_id, SecretStr(secret))
        case _:
            # Not quoted: the body has a secret.
            raise PolarisUnexpectedAnswer("Polaris created a principal and returned no credentials", status=201)


CURRENT: Final = "AWSCURRENT"
BEGUN: Final = "DELEGATION_ROTATION_BEGUN"
"""The staging label of the version from which the last rotation was begun."""
_TRANSIENT: Final = frozenset({"InternalServiceError", "InternalServiceErrorException", "ThrottlingException"})
_ABSENT: Final = "ResourceNotFoundException"


class RotationStep(StrEnum):
    """The steps, in their order; each may be repeated."""

    CREATE = "createSecret"
    SET = "setSecret"
    TEST = "testSecret"
    FINISH = "finishSecret"


_STEPS: Final = frozenset(RotationStep)


@dataclass(frozen=True, slots=True)
class RotationEvent:
    """What Secrets Manager invokes the function with; `token` is the id of the new version."""

    step: RotationStep
    secret_id: str
    token: str

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> "RotationEvent":
        """Parse an event; raises PolarisMisconfigured, which names the fields."""
        match event:
            case {"Step": str(step), "SecretId": str(secret_id), "ClientRequestToken": str(token)} if step in _STEPS:
                return cls(RotationStep(step), secret_id, token)
            case _:
                raise PolarisMisconfigured(
                    f"a rotation needs Step, one of {', '.join(RotationStep)}, SecretId and ClientRequestToken; "
                    "Secrets Manager invokes this function, nobody else"
                )


class RotatingPrincipal(Protocol):
    """A principal of Polaris that signs in with one pair of credentials."""

    def sign_in(self) -> None:
        """Get a fresh token; raises PolarisUnauthorized if the secret is refused."""
        ...

    def rotate(self) -> ClientCredentials:
        """Return new credentials; raises PolarisOutcomeUnknown if Polaris may have made some and no answer came."""
        ...


class SecretRotation:
    """Performs the steps; `principal` returns the principal that signs in with given credentials. `secrets_manager` is
    a boto3 client. Raises SecretOutcomeUnknown, PolarisMisconfigured, PolarisUnavailable, and the principal's
    errors."""

    def __init__(self, secrets_manager: Any, principal: Callable[[ClientCredentials], RotatingPrincipal]) -> None:
        self._secrets_manager = secrets_manager
        self._principal = principal

    def perform(self, event: RotationEvent) -> None:
        """Perform one step; a step that was done before changes nothing."""
        stages = self._stages(event)
        if CURRENT in stages[event.token]:
            return  # all steps are done
        if PENDING not in stages[event.token]:
            raise PolarisMisconfigured(
                f"version {event.token} of {event.secret_id} is not to be rotated to: no {PENDING}"
            )
        match event.step:
            case RotationStep.CREATE:
                self._create(event, stages)
            case RotationStep.TEST:
                self._test(event)
            case RotationStep.FINISH:
                self._finish(event, stages)
            case RotationStep.SET:
                return  # Polaris has it since createSecret

    def _create(self, event: RotationEvent, stages: Mapping[str, frozenset[str]]) -> None:
        if self._value(event.secret_id, VersionId=event.token, VersionStage=PENDING) is not None:
            return
        current = _with(CURRENT, stages)
        found = self._value(event.secret_id, VersionStage=CURRENT)
        if current is None or found is None:
            raise PolarisMisconfigured(f"{event.secret_id} has no credentials to rotate; store them first")
        principal = self._principal(credentials_of(found, event.secret_id))
        principal.sign_in()
        begun = _with(BEGUN, stages)
        if begun == current:
            raise SecretOutcomeUnknown(
                f"an earlier rotation of {event.secret_id} had no clear answer: Polaris may keep its secret as the "
                "former one, which another rotation would end. It still works. Reset the principal as root, store the "
                "new secret, and rotate again (runbook, Secret rotation)"
            )
        self._move(event.secret_id, BEGUN, current, begun)
        try:
            made = principal.rotate()
        except (PolarisOutcomeUnknown, PolarisUnexpectedAnswer):
            raise
        except PolarisError:
            # Polaris refused or was not reached, so nothing was made: the next attempt may rotate.
            self._remove(event.secret_id, BEGUN, current)
            raise
        text = json.dumps(
            {"client_id": made.client_id, "client_secret": made.client_secret.get_secret_value()}, separators=(",", ":")
        )
        self._call(
            "put_secret_value",
            SecretId=event.secret_id,
            ClientRequestToken=event.token,
            SecretString=text,
            VersionStages=[PENDING],
        )

    def _test(self, event: RotationEvent) -> None:
        """Sign in with the new credentials, or with the present ones when a new schedule is only tried out."""
        text = self._value(event.secret_id, VersionId=event.token) or self._value(event.secret_id, VersionStage=CURRENT)
        if text is None:
            raise PolarisMisconfigured(f"{event.secret_id} has no credentials to test; store them first")
        self._principal(credentials_of(text, event.secret_id)).sign_in()

    def _finish(self, event: RotationEvent, stages: Mapping[str, frozenset[str]]) -> None:
        self._move(event.secret_id, CURRENT, event.token, _with(CURRENT, stages))

    def _stages(self, event: RotationEvent) -> dict[str, frozenset[str]]:
        described = self._call("describe_secret", SecretId=event.secret_id)
        if not described.get("RotationEnabled"):
            raise PolarisMisconfigured(f"rotation of {event.secret_id} is not enabled")
        versions = described.get("VersionIdsToStages", {})
        found = {version: frozenset(labels) for version, labels in versions.items()}
        if event.token not in found:
            raise PolarisMisconfigured(f"{event.secret_id} has no version {event.token} to rotate to")
        return found

    def _value(self, secret_id: str, **which: str) -> str | None:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - commands do without

        try:
            answer = self._secrets_manager.get_secret_value(SecretId=secret_id, **which)
        except ClientError as error:
            if error.response["Error"]["Code"] == _ABSENT:
                return None
            raise _failed("get_secret_value", error) from error
        except BotoCoreError as error:
            raise _failed("get_secret_value", error) from error
        text: str | None = answer.get("SecretString")
        return text

    def _move(self, secret_id: str, label: str, to: str, before: str | None) -> None:
        former = {} if before is None else {"RemoveFromVersionId": before}
        self._call("update_secret_version_stage", SecretId=secret_id, VersionStage=label, MoveToVersionId=to, **former)

    def _remove(self, secret_id: str, label: str, version: str) -> None:
        self._call("update_secret_version_stage", SecretId=secret_id, VersionStage=label, RemoveFromVersionId=version)

    def _call(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            answer: Mapping[str, Any] = getattr(self._secrets_manager, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise _failed(operation, error) from error
        return answer


def _with(label: str, stages: Mapping[str, frozenset[str]]) -> str | None:
    return next((version for version, labels in stages.items() if label in labels), None)


def _failed(operation: str, error: "ClientError | BotoCoreError") -> PolarisUnavailable | PolarisMisconfigured:
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    if isinstance(error, BotoCoreError):
        return PolarisUnavailable(f"Secrets Manager did not answer {operation}: {type(error).__name__}")
    code = error.response["Error"]["Code"]
    kind = PolarisUnavailable if code in _TRANSIENT else PolarisMisconfigured
    return kind(f"Secrets Manager answered {code} to {operation}")
