"""The backends of the service: AWS, DynamoDB, S3 behind its front, Polaris or its stand-in."""

import contextlib
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar

import boto3
import httpx
from botocore.config import Config
from pydantic import SecretStr

from delegation.polaris.answers import PolarisError
from delegation.polaris.client import PolarisClient
from delegation.polaris.requests import DEFAULT_SCOPE, ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import Transport
from delegation.timestamps import utc_now
from infra.local import resources
from infra.local.aws.dynamodb import DynamoDbLocal
from infra.local.aws.server import REGION, MotoAws, ObjectAges
from infra.local.catalog.access import ROOT_PRINCIPAL, LocalPrincipal
from infra.local.catalog.layout import PURGE_VIEWS
from infra.local.catalog.persisted import PersistedState
from infra.local.catalog.server import LocalCatalog
from infra.local.catalog.state import CatalogState, MemoryState
from infra.local.errors import CannotStartError, UnavailableError
from infra.local.given_polaris import GivenPrincipal
from infra.local.identities import Identities
from infra.local.lambdas.functions import LambdaPool
from infra.local.options import StackOptions
from infra.local.s3.front import S3Front
from infra.local.s3.requests import VendedKeys
from polaris_common.dynamodb import client_config
from polaris_persistence.backends.base import Backend
from polaris_persistence.backends.dynamodb import Calls, DynamoDbBackend
from polaris_persistence.backends.dynamodb_tables import create_tables
from polaris_persistence.backends.memory import MemoryBackend

_PASSED_ON: Final = ("BOTOCORE_EXPERIMENTAL__PLUGINS", "RECORDED_CALLS")
"""Variables of this process that functions and jobs get too: a plugin of botocore's clients, by which tests record."""


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """The access key of the stack; moto accepts any, the user's own endpoints may not."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    @classmethod
    def choose(cls, environ: Mapping[str, str], *, foreign: bool) -> Self:
        """Return the keys of the AWS variables if an endpoint is `foreign` (the user's own), otherwise dummies."""
        key_id, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
        if foreign and key_id and secret:
            return cls(key_id, secret, environ.get("AWS_SESSION_TOKEN"))
        return cls("local", "local")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The URLs of AWS services; `aws` serves all without a field here."""

    aws: str
    dynamodb: str
    s3: str
    keys: AwsKeys
    emr_serverless: str | None = None

    def environment(self) -> dict[str, str]:
        """Return the AWS SDKs' standard variables for a function; the machine's AWS configuration files are ignored."""
        optional = {
            "AWS_SESSION_TOKEN": self.keys.session_token,
            "AWS_ENDPOINT_URL_EMR_SERVERLESS": self.emr_serverless,
            **{name: os.environ.get(name) for name in _PASSED_ON},
        }
        return {
            "AWS_ENDPOINT_URL": self.aws,
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb,
            "AWS_ENDPOINT_URL_S3": self.s3,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self.keys.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.keys.secret_access_key,
            **{name: value for name, value in optional.items() if value},
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def client(service: str, url: str, keys: AwsKeys, config: Config | None = None) -> Any:
    return boto3.session.Session().client(  # type: ignore[call-overload]
        service,
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
        aws_session_token=keys.session_token,
        config=config,
    )


LOG = logging.getLogger(__name__)
WAREHOUSE_BUCKET = "warehouse"


@dataclass(frozen=True, slots=True)
class Polaris:
    """A catalog and two of its principals as (id, secret): an owner of tables, and the service.

    The stand-in also has `root`, who may use the management API. `public_key` (PEM) verifies the catalog's tokens, None
    if it is not known.
    """

    url: str
    warehouse: str
    owner: tuple[str, str]
    service: tuple[str, str]
    realm: str
    scope: str
    service_scope: str
    note: str
    root: tuple[str, str] | None = None
    public_key: str | None = None

    def __repr__(self) -> str:
        return f"Polaris({self.url!r})"


@dataclass(frozen=True, slots=True)
class Backends:
    """The started backends; `dynamodb` is the process to check, None if the stack uses another DynamoDB."""

    aws: MotoAws
    endpoints: Endpoints
    polaris: Polaris
    dynamodb: DynamoDbLocal | None
    dynamodb_note: str
    s3_note: str


class _Startable(Protocol):
    def start(self) -> object: ...

    def stop(self) -> None: ...


P = TypeVar("P", bound=_Startable)


@dataclass(frozen=True, slots=True)
class Start:
    """What the steps of a start share; `cleanup` ends the started parts, the newest first, also after an error."""

    options: StackOptions
    identities: Identities
    lambdas: LambdaPool
    logs: Path
    cleanup: contextlib.ExitStack

    def run(self, part: P) -> P:
        self.cleanup.callback(part.stop)
        part.start()
        return part


def start_backends(start: Start, keys: AwsKeys) -> Backends:
    """Start the backends, DynamoDB (a JVM) in parallel."""
    options = start.options
    with ThreadPoolExecutor(1, thread_name_prefix="start") as thread:
        local = DynamoDbLocal(log=start.logs / "dynamodb.log")
        start.cleanup.callback(local.stop)
        unavailable = None if options.dynamodb_endpoint else thread.submit(_start_dynamodb, local)
        aws = start.run(MotoAws(start.lambdas, ages=None if options.s3_endpoint else ObjectAges()))
        vended = VendedKeys()
        s3_url, s3_note = _start_s3(start, aws, vended)
        s3 = client("s3", s3_url, keys)
        resources.create_buckets(s3, WAREHOUSE_BUCKET, resources.PLAN_BUCKET)
        if options.versioned:
            resources.keep_versions(s3, WAREHOUSE_BUCKET)
        reason = unavailable.result() if unavailable else None
    if unavailable is None:
        dynamodb_url, note = str(options.dynamodb_endpoint), "given"
    elif reason is None:
        dynamodb_url, note = local.url, "DynamoDB Local, in memory"
    else:
        dynamodb_url, note = aws.url, f"moto, one request at a time, because DynamoDB Local is not available: {reason}"
    endpoints = Endpoints(aws.url, dynamodb_url, s3_url, keys)
    state = _catalog_state(start, endpoints, in_memory=reason is not None)
    polaris = _start_polaris(start, aws, endpoints, vended, state)
    return Backends(aws, endpoints, polaris, local if local.running else None, note, s3_note)


def _start_dynamodb(local: DynamoDbLocal) -> str | None:
    """Start DynamoDB Local; return None, or why it cannot run on this machine."""
    try:
        local.start()
    except (UnavailableError, CannotStartError) as exc:
        LOG.warning("%s", exc)
        return str(exc)
    return None


def _start_s3(start: Start, aws: MotoAws, vended: VendedKeys) -> tuple[str, str]:
    """Start the S3 front, unless both S3 and Polaris are given: a real Polaris vends keys for the store itself."""
    given = start.options.s3_endpoint
    if given and start.options.polaris_url:
        return given, "given"
    front = start.run(S3Front(given or aws.url, vended))
    return front.url, f"restricts vended keys to their prefixes; the store is {given or 'moto'}"


def _catalog_state(start: Start, endpoints: Endpoints, *, in_memory: bool) -> CatalogState:
    """Return where the stand-in keeps its catalog; the persistence is in memory where there is no real DynamoDB."""
    options = start.options
    if options.catalog == "memory":
        return MemoryState()
    backend: Backend = MemoryBackend()
    if not in_memory:
        objects, references = resources.CATALOG_TABLES
        # With botocore's own time-outs: DynamoDB Local's first answer may take seconds.
        create_tables(client("dynamodb", endpoints.dynamodb, endpoints.keys), objects, references)
        dynamodb = client("dynamodb", endpoints.dynamodb, endpoints.keys, client_config())
        backend = DynamoDbBackend(Calls(dynamodb), objects=objects, references=references)
    state = PersistedState(backend, realm=options.polaris_realm, catalog=options.warehouse)
    start.cleanup.callback(state.close)
    return state


def _start_polaris(
    start: Start, aws: MotoAws, endpoints: Endpoints, vended: VendedKeys, state: CatalogState
) -> Polaris:
    options, identities = start.options, start.identities
    given = options.given_polaris()
    if given is not None:
        scopes = (given.owner.scope, given.service.scope)
        place, principals = (given.url, given.warehouse), (_credential(given.owner), _credential(given.service))
        return Polaris(*place, *principals, given.realm, *scopes, "given", public_key=options.public_key())
    stand_in = LocalCatalog(
        name=options.warehouse,
        location=f"s3://{WAREHOUSE_BUCKET}/{options.warehouse}",
        s3=client("s3", endpoints.s3, endpoints.keys),
        sts=aws.client("sts"),
        keys=vended,
        s3_endpoint=endpoints.s3,
        region=REGION,
        principals=[identities.owner, identities.service],
        root=identities.root,
        realm=options.polaris_realm,
        properties={PURGE_VIEWS: "false"},  # as docs/polaris.md advises: nobody could drop a view otherwise
        state=state,
    )
    catalog = start.run(stand_in)
    return Polaris(
        catalog.url,
        options.warehouse,
        _credential(identities.owner),
        _credential(identities.service),
        options.polaris_realm,
        DEFAULT_SCOPE,
        DEFAULT_SCOPE,
        f"a stand-in: Iceberg REST catalog with vended credentials; catalog in {options.catalog}",
        root=(ROOT_PRINCIPAL, identities.root.get_secret_value()),
        public_key=catalog.tokens.public_key_pem(),
    )


def _credential(principal: GivenPrincipal | LocalPrincipal) -> tuple[str, str]:
    return principal.client_id, principal.client_secret.get_secret_value()


def create_tombstone_namespace(polaris: Polaris, levels: tuple[str, ...]) -> None:
    """Create the namespace and those above it as the owner of tables; raises CannotStartError."""
    client_id, client_secret = polaris.owner
    with httpx.Client(timeout=30) as http:
        transport = Transport(http)
        tokens = OAuth2TokenSource(
            f"{polaris.url}/v1/oauth/tokens",
            lambda: ClientCredentials(client_id, SecretStr(client_secret)),
            clock=utc_now,
            scope=polaris.scope,
            realm=polaris.realm,
            transport=transport,
        )
        catalog = PolarisClient(polaris.url, tokens, realm=polaris.realm, transport=transport)
        try:
            for count in range(1, len(levels) + 1):
                catalog.create_namespace(polaris.warehouse, levels[:count])
        except PolarisError as error:
            raise CannotStartError(
                "the gateway",
                f"the namespace {'.'.join(levels)} for tombstones was not created ({type(error).__name__}); create it "
                "with `delegation polaris setup`, or let the owner create namespaces",
            ) from error
