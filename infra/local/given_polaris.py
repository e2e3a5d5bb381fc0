"""Checks a given Polaris before a stack starts: address, secrets, realm, scopes, warehouse, grants and storage.

The grants are tried on a table that the check creates as the owner, and removes. Nothing else shows them: Polaris lists
a principal's grants to administrators only, and credentials that may not write look the same as those that may.
"""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import httpx
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import SecretStr

from delegation.identifiers import TableIdentifier, encoded
from delegation.polaris import answers
from delegation.polaris.client import PolarisClient
from delegation.polaris.credentials import select_credential
from delegation.polaris.model import LoadedTable
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import RequestRetries, Transport
from delegation.storage.locations import parse
from delegation.timestamps import utc_now
from infra.local.errors import PolarisUnusable
from polaris_common.errors import DelegationError

_TABLE = {
    "name": "probe",
    "schema": {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
    },
}
_URL = "--polaris-url is the URL of its Iceberg REST API, which ends in /api/catalog"
_BRIEF = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2})
_TO_OWNER = "NAMESPACE_CREATE, NAMESPACE_DROP, TABLE_CREATE and TABLE_DROP on the catalog, or CATALOG_MANAGE_CONTENT"


@dataclass(frozen=True, slots=True)
class GivenPrincipal:
    """A principal in the given Polaris: what it is for, its credentials, its scope, and the options that give these."""

    role: str
    client_id: str
    client_secret: SecretStr = field(repr=False)
    scope: str
    options: str


@dataclass(frozen=True, slots=True)
class GivenPolaris:
    """A Polaris that the user names, with an owner of tables and the service as principals."""

    url: str
    warehouse: str
    realm: str
    owner: GivenPrincipal
    service: GivenPrincipal


def check_polaris(given: GivenPolaris) -> None:
    """Raise PolarisUnusable for the first thing that is wrong; the message names the option or the grant to change."""
    with httpx.Client(timeout=10.0) as http:
        transport = Transport(http, backoff=RequestRetries(attempts=2))
        owner, service = (_Session(given, each, http, transport) for each in (given.owner, given.service))
        owner.check_entry()
        service.check_entry()
        with owner.probe_table() as identifier:
            service.check_grants(identifier)


class _Session:
    def __init__(
        self, given: GivenPolaris, principal: GivenPrincipal, http: httpx.Client, transport: Transport
    ) -> None:
        self._given = given
        self._principal = principal
        self._http = http
        self._tokens = OAuth2TokenSource(
            f"{given.url.rstrip('/')}/v1/oauth/tokens",
            lambda: ClientCredentials(principal.client_id, principal.client_secret),
            clock=utc_now,
            scope=principal.scope,
            realm=given.realm,
            transport=transport,
        )
        self._catalog = PolarisClient(given.url, self._tokens, realm=given.realm, transport=transport)

    def check_entry(self) -> None:
        """Check the address, the realm, the principal's secret and scope, and the warehouse."""
        try:
            self._catalog.sign_in()
        except answers.NoSuchCatalog as error:
            # The type of an unknown path's 404, too.
            raise self._unusable(error, _URL) from error
        except answers.PolarisError as error:
            raise self._unusable(error, self._advice(error)) from error
        try:
            # Any request for the warehouse; the right to list is the service's alone.
            for _ in self._catalog.list_namespaces(self._given.warehouse):
                break
        except answers.PolarisForbidden:
            return
        except answers.PolarisError as error:
            raise self._unusable(error, self._advice(error)) from error

    def _advice(self, error: answers.PolarisError) -> str:
        principal = self._principal
        match error:
            case answers.PolarisMisconfigured() if error.error_type == "MissingOrInvalidRealm":
                return f"{self._given.realm} is not a realm there: set --polaris-realm"
            case answers.PolarisMisconfigured():
                return f"the scope {principal.scope} is refused: set PRINCIPAL_ROLE:ALL or the names of principal roles"
            case answers.PolarisUnauthorized() if error.error_type is not None:
                return f"the credentials of the {principal.role} are refused: check {principal.options}"
            case answers.PolarisUnauthorized():
                return f"assign the role to the {principal.role}'s principal, or set its scope ({principal.scope})"
            case answers.NoSuchCatalog():
                return f"it has no catalog {self._given.warehouse}: set --warehouse"
            case answers.PolarisUnavailable():
                return "check --polaris-url, and that Polaris runs"
            case answers.PolarisUnexpectedAnswer():
                return _URL
            case _:
                return f"check the {principal.role}'s principal"

    @contextlib.contextmanager
    def probe_table(self) -> Iterator[TableIdentifier]:
        """Create a namespace with a table as the owner; remove both at the end."""
        namespace = f"delegation_probe_{uuid.uuid4().hex[:8]}"
        at = f"namespaces/{encoded(namespace)}"
        self._owner_sends("POST", "namespaces", {"namespace": [namespace], "properties": {}})
        with contextlib.ExitStack() as removal:
            removal.callback(self._owner_sends, "DELETE", at)
            self._owner_sends("POST", f"{at}/tables", _TABLE)
            removal.callback(self._owner_sends, "DELETE", f"{at}/tables/probe")
            yield TableIdentifier(self._given.warehouse, (namespace,), "probe")

    def _owner_sends(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        url = f"{self._given.url.rstrip('/')}/v1/{encoded(self._given.warehouse)}/{path}"
        headers = {"Authorization": f"Bearer {self._tokens.token()}", "Polaris-Realm": self._given.realm}
        try:
            response = self._http.request(method, url, json=body, headers=headers)
        except httpx.TransportError as error:
            raise PolarisUnusable(self._given.url, f"{type(error).__name__} at {method} {path}", "try again") from error
        if not response.is_success:
            refused = answers.error_of(response, write=True, secrets=[self._tokens.token()])
            raise self._unusable(refused, f"the owner needs {_TO_OWNER}: grant them to {self._principal.client_id}")

    def check_grants(self, identifier: TableIdentifier) -> None:
        """Check as the service that it lists, loads with credentials, and that these delete."""
        grant = f"grant it to the service's principal {self._principal.client_id}"
        try:
            list(self._catalog.list_namespaces(identifier.catalog))
            list(self._catalog.list_tables(identifier.catalog, identifier.namespace))
            table = self._catalog.load_table(identifier)
        except answers.CredentialVendingFailed as error:
            advice = "enable credential vending for the catalog: the service purges only with vended credentials"
            raise self._unusable(error, advice) from error
        except answers.PolarisForbidden as error:
            raise self._unusable(error, grant) from error
        except DelegationError as error:
            raise self._unusable(error, "the service cannot load a table that the owner has created") from error
        self._check_delete(table)

    def _check_delete(self, table: LoadedTable) -> None:
        """Delete the probe's only file, so that the drop leaves nothing, and to see whether the service may delete."""
        uri = table.metadata_location
        place = parse(uri)
        try:
            credential = select_credential(table, uri)
            s3 = boto3.client(
                "s3",
                endpoint_url=table.s3.endpoint,
                region_name=table.s3.region or "us-east-1",
                aws_access_key_id=credential.access_key_id,
                aws_secret_access_key=credential.secret_access_key,
                aws_session_token=credential.session_token,
                config=_BRIEF.merge(Config(s3={"addressing_style": "path" if table.s3.path_style else "auto"})),
            )
            s3.delete_object(Bucket=place.bucket, Key=place.key)
        except answers.CredentialVendingFailed as error:
            raise self._unusable(error, "set up an STS in the catalog's storage configuration") from error
        except ClientError as error:
            code = error.response["Error"].get("Code", "")
            reason = f"the credentials that it vends to the service cannot delete ({code}, {uri})"
            advice = f"grant TABLE_WRITE_DATA on the catalog to the service's principal {self._principal.client_id}"
            raise PolarisUnusable(self._given.url, reason, advice) from error
        except BotoCoreError as error:
            reason = (
                f"the store that it names, {table.s3.endpoint or 'AWS S3'}, does not answer: {type(error).__name__}"
            )
            raise PolarisUnusable(self._given.url, reason, "check the endpoint in its storage configuration") from error

    def _unusable(self, error: DelegationError, advice: str) -> PolarisUnusable:
        return PolarisUnusable(self._given.url, f"as the {self._principal.role}, {error}", advice)
