"""A Polaris under test: the stand-in in this process, or the server at POLARIS_URL.

For a real server set POLARIS_URL (…/api/catalog), POLARIS_CREDENTIAL (`id:secret` of the principal `root`),
POLARIS_WAREHOUSE (an existing, internal catalog on S3 with an STS) and, unless it is POLARIS, POLARIS_REALM. What the
tests create has names that begin with `conf_`, and is removed.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import boto3
import httpx
from pydantic import SecretStr

from delegation.polaris.client import PolarisClient
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import Transport
from delegation.timestamps import utc_now
from infra.local.catalog.server import LocalCatalog
from infra.local.catalog.state import CatalogState
from infra.local.s3.requests import VendedKeys
from tests.aws import mock_aws

BUCKET = "warehouse"
ALL_ROLES = "PRINCIPAL_ROLE:ALL"
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
# Made once, because loading the certificates takes longer than a request.
TLS = httpx.create_ssl_context()
VEND = {"X-Iceberg-Access-Delegation": "vended-credentials"}


@dataclass(frozen=True)
class Polaris:
    """A server, its administrator's credential, and one catalog of it."""

    url: str
    credential: tuple[str, str] = field(repr=False)
    warehouse: str
    realm: str
    # Where the tests reach the store that the server names otherwise.
    s3_endpoint: str | None = None
    local: LocalCatalog | None = field(default=None, repr=False, compare=False)

    @property
    def management_url(self) -> str:
        return self.url.removesuffix("/catalog") + "/management/v1"

    def token(self, credential: tuple[str, str] | None = None, *, scope: str = ALL_ROLES) -> httpx.Response:
        """Ask for a token, by default as the administrator."""
        client_id, secret = credential or self.credential
        form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret, "scope": scope}
        return httpx.post(f"{self.url}/v1/oauth/tokens", data=form, headers={"Polaris-Realm": self.realm}, verify=TLS)

    def session(self, credential: tuple[str, str] | None = None, *, scope: str = ALL_ROLES) -> httpx.Client:
        """Return a client with the token of a principal."""
        token = self.token(credential, scope=scope).json()["access_token"]
        return httpx.Client(
            headers={"Authorization": f"Bearer {token}", "Polaris-Realm": self.realm}, timeout=20.0, verify=TLS
        )


class PolarisView:
    """One test's view of a server: requests as the administrator and as new principals, with what they made removed."""

    def __init__(self, polaris: Polaris) -> None:
        self.polaris = polaris
        self.name = f"conf_{uuid.uuid4().hex[:12]}"
        self.admin = polaris.session()
        self._stack = contextlib.ExitStack()
        self._stack.callback(self.admin.close)

    def close(self) -> None:
        self._stack.close()

    def remove_later(self, path: str) -> None:
        """Have the administrator send DELETE to a path of the management API at the end of the test."""
        self._stack.callback(self.admin.delete, f"{self.polaris.management_url}/{path}")

    def after(self, action: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Call a function at the end of the test, before what earlier calls asked for."""
        self._stack.callback(action, *arguments, **named)

    def manage(self, method: str, path: str, body: Any = None, *, who: httpx.Client | None = None) -> httpx.Response:
        """Send a request to the management API, by default as the administrator."""
        return (who or self.admin).request(method, f"{self.polaris.management_url}/{path}", json=body)

    def role_path(self, role: str, rest: str = "") -> str:
        return f"catalogs/{self.polaris.warehouse}/catalog-roles/{role}{rest}"

    def principal(self, *grants: Mapping[str, Any], suffix: str = "") -> httpx.Client:
        """Return a client of a new principal; see `credential`."""
        client = self.polaris.session(self.credential(*grants, suffix=suffix))
        self._stack.callback(client.close)
        return client

    def credential(self, *grants: Mapping[str, Any], suffix: str = "") -> tuple[str, str]:
        """Return the id and secret of a new principal with roles of its own name and `grants`."""
        name = f"{self.name}{suffix}"
        made = self.manage("POST", "principals", {"principal": {"name": name}})
        assert made.status_code == 201, made.text
        for path, body in (
            ("principal-roles", {"principalRole": {"name": name}}),
            (f"catalogs/{self.polaris.warehouse}/catalog-roles", {"catalogRole": {"name": name}}),
        ):
            assert self.manage("POST", path, body).status_code == 201
        assert self.manage("PUT", f"principals/{name}/principal-roles", {"principalRole": {"name": name}}).is_success
        path = f"principal-roles/{name}/catalog-roles/{self.polaris.warehouse}"
        assert self.manage("PUT", path, {"catalogRole": {"name": name}}).is_success
        for path in (f"principals/{name}", f"principal-roles/{name}", self.role_path(name)):
            self.remove_later(path)
        for grant in grants:
            self.grant(grant, suffix=suffix)
        credentials = made.json()["credentials"]
        return credentials["clientId"], credentials["clientSecret"]

    def client_with(self, *grants: Mapping[str, Any], **options: Any) -> PolarisClient:
        """Return the service's client of a new principal; see `client`."""
        return self.client(self.credential(*grants), **options)

    def client(
        self, credential: tuple[str, str] | None = None, *, scope: str = ALL_ROLES, realm: str | None = None
    ) -> PolarisClient:
        """Return the service's client, by default as the administrator, closed at the end of the test."""
        transport, own_realm = self.transport(), realm or self.polaris.realm
        tokens = self.tokens(transport, credential, scope=scope, realm=own_realm)
        return PolarisClient(self.polaris.url, tokens, realm=own_realm, transport=transport)

    def transport(self) -> Transport:
        http = httpx.Client(timeout=20.0, verify=TLS)
        self._stack.callback(http.close)
        return Transport(http)

    def tokens(
        self, transport: Transport, credential: tuple[str, str] | None = None, **options: Any
    ) -> OAuth2TokenSource:
        client_id, secret = credential or self.polaris.credential
        url, credentials = f"{self.polaris.url}/v1/oauth/tokens", ClientCredentials(client_id, SecretStr(secret))
        options = {"scope": ALL_ROLES, "realm": self.polaris.realm, **options}
        return OAuth2TokenSource(url, lambda: credentials, clock=utc_now, transport=transport, **options)

    def grant(self, grant: Mapping[str, Any], *, suffix: str = "") -> None:
        answer = self.manage("PUT", self.role_path(f"{self.name}{suffix}", "/grants"), {"grant": dict(grant)})
        assert answer.status_code == 201, answer.text

    def flagged(self, **flags: str) -> None:
        """Set flags of the catalog for the rest of the test."""
        path = f"catalogs/{self.polaris.warehouse}"
        before = self.manage("GET", path).json()

        def put(properties: Mapping[str, str]) -> None:
            version = self.manage("GET", path).json()["entityVersion"]
            body = {"currentEntityVersion": version, "properties": dict(properties)}
            assert self.manage("PUT", path, body).status_code == 200

        self._stack.callback(put, before["properties"])
        put(before["properties"] | flags)

    def catalog(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        who: httpx.Client | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request to a path of the catalog, such as `namespaces`, by default as the administrator."""
        url = f"{self.polaris.url}/v1/{self.polaris.warehouse}/{path}"
        return (who or self.admin).request(method, url, json=body, headers=dict(headers or {}), params=params)

    def delete_object(self, uri: str, credential: Mapping[str, str]) -> None:
        """Delete an object with the `config` of a load with credentials."""
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        s3 = boto3.client(
            "s3",
            endpoint_url=self.polaris.s3_endpoint or credential.get("s3.endpoint"),
            region_name=credential.get("client.region", "us-east-1"),
            aws_access_key_id=credential["s3.access-key-id"],
            aws_secret_access_key=credential["s3.secret-access-key"],
            aws_session_token=credential["s3.session-token"],
        )
        s3.delete_object(Bucket=bucket, Key=key)

    def namespace(self, *levels: str) -> tuple[str, ...]:
        """Create a namespace of this test, without `levels` a top one, and remove it at the end."""
        namespace = (self.name, *levels)
        answer = self.catalog("POST", "namespaces", {"namespace": list(namespace), "properties": {}})
        assert answer.status_code == 200, answer.text
        self._stack.callback(self.catalog, "DELETE", f"namespaces/{encoded(namespace)}")
        return namespace

    def create(self, name: str, *, who: httpx.Client | None = None, **fields: Any) -> httpx.Response:
        """Create a table in the namespace of this test; remove it at the end if that succeeds."""
        body = {"name": name, "schema": SCHEMA, **fields}
        answer = self.catalog("POST", f"{tables((self.name,))}", body, who=who)
        if answer.status_code == 200 and not fields.get("stage-create"):
            self._stack.callback(self.catalog, "DELETE", table((self.name,), name))
        return answer


def encoded(namespace: tuple[str, ...]) -> str:
    return "%1F".join(quote(level, safe="") for level in namespace)


def tables(namespace: tuple[str, ...]) -> str:
    return f"namespaces/{encoded(namespace)}/tables"


def table(namespace: tuple[str, ...], name: str) -> str:
    return f"{tables(namespace)}/{quote(name, safe='')}"


@contextlib.contextmanager
def stand_in(*, newer: bool = False, state: CatalogState | None = None) -> Iterator[Polaris]:
    """Serve the stand-in over moto's S3 and STS in this process, by default with its state in memory."""
    with mock_aws():
        client = {"region_name": "us-east-1", "aws_access_key_id": "admin", "aws_secret_access_key": "admin"}
        s3 = boto3.client("s3", **client)
        s3.create_bucket(Bucket=BUCKET)
        catalog = LocalCatalog(
            name="lake",
            location=f"s3://{BUCKET}/tables",
            s3=s3,
            sts=boto3.client("sts", **client),
            keys=VendedKeys(),
            s3_endpoint="http://127.0.0.1:9",
            region="us-east-1",
            principals=[],
            root=SecretStr("root-secret"),
            newer=newer,
            state=state,
        ).start()
        try:
            yield Polaris(catalog.url, ("root", "root-secret"), "lake", "POLARIS", "https://s3.amazonaws.com", catalog)
        finally:
            catalog.stop()


def real() -> Polaris | None:
    """Return the server that the environment names."""
    url, credential = os.environ.get("POLARIS_URL", ""), os.environ.get("POLARIS_CREDENTIAL", "")
    client_id, _, secret = credential.partition(":")
    if not url or not client_id or not secret or not os.environ.get("POLARIS_WAREHOUSE"):
        return None
    realm = os.environ.get("POLARIS_REALM", "POLARIS")
    return Polaris(url.rstrip("/"), (client_id, secret), os.environ["POLARIS_WAREHOUSE"], realm)
