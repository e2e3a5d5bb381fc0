"""The backends of the service: AWS, DynamoDB, S3 behind its front, Polaris or its stand-in."""

import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from delegation.polaris.tokens import DEFAULT_SCOPE
from infra.local import resources
from infra.local.aws.dynamodb import DynamoDbLocal
from infra.local.aws.object_ages import ObjectAges
from infra.local.aws.server import REGION, MotoAws
from infra.local.catalog.persisted import PersistedState
from infra.local.catalog.principals.access import ROOT_PRINCIPAL
from infra.local.catalog.server import LocalCatalog
from infra.local.catalog.state import CatalogState, MemoryState
from infra.local.catalog.warehouse import PURGE_VIEWS
from infra.local.endpoints import AwsKeys, Endpoints, client
from infra.local.errors import CannotStartError, UnavailableError
from infra.local.identities import Identities
from infra.local.lambdas.functions import LambdaPool
from infra.local.options import StackOptions
from infra.local.s3.front import S3Front
from infra.local.s3.vended_keys import VendedKeys
from polaris_common.dynamodb import client_config
from polaris_persistence.backends.base import Backend
from polaris_persistence.backends.dynamodb import Calls, DynamoDbBackend
from polaris_persistence.backends.dynamodb_tables import create_tables
from polaris_persistence.backends.memory import MemoryBackend

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


def start_backends(
    options: StackOptions,
    *,
    keys: AwsKeys,
    identities: Identities,
    lambdas: LambdaPool,
    logs: Path,
    cleanup: contextlib.ExitStack,
) -> Backends:
    """Start the backends, DynamoDB (a JVM) in parallel; `cleanup` ends the started ones, also after an error."""
    with ThreadPoolExecutor(1, thread_name_prefix="start") as thread:
        local = DynamoDbLocal(log=logs / "dynamodb.log")
        cleanup.callback(local.stop)
        unavailable = None if options.dynamodb_endpoint else thread.submit(_start_dynamodb, local)
        aws = MotoAws(lambdas, ages=None if options.s3_endpoint else ObjectAges()).start()
        cleanup.callback(aws.stop)
        vended = VendedKeys()
        s3_url, s3_note = _start_s3(options, aws, vended, cleanup)
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
    polaris = _start_polaris(
        options,
        aws=aws,
        endpoints=endpoints,
        vended=vended,
        identities=identities,
        state=_catalog_state(options, endpoints, in_memory=reason is not None, cleanup=cleanup),
        cleanup=cleanup,
    )
    return Backends(
        aws=aws,
        endpoints=endpoints,
        polaris=polaris,
        dynamodb=local if local.running else None,
        dynamodb_note=note,
        s3_note=s3_note,
    )


def _start_dynamodb(local: DynamoDbLocal) -> str | None:
    """Start DynamoDB Local; return None, or why it cannot run on this machine."""
    try:
        local.start()
    except (UnavailableError, CannotStartError) as exc:
        LOG.warning("%s", exc)
        return str(exc)
    return None


def _start_s3(
    options: StackOptions, aws: MotoAws, vended: VendedKeys, cleanup: contextlib.ExitStack
) -> tuple[str, str]:
    """Start the S3 front, unless both S3 and Polaris are given: a real Polaris vends keys for the store itself."""
    if options.s3_endpoint and options.polaris_url:
        return options.s3_endpoint, "given"
    front = S3Front(options.s3_endpoint or aws.url, vended).start()
    cleanup.callback(front.stop)
    return front.url, f"restricts vended keys to their prefixes; the store is {options.s3_endpoint or 'moto'}"


def _catalog_state(
    options: StackOptions, endpoints: Endpoints, *, in_memory: bool, cleanup: contextlib.ExitStack
) -> CatalogState:
    """Return where the stand-in keeps its catalog; the persistence is in memory where there is no real DynamoDB."""
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
    cleanup.callback(state.close)
    return state


def _start_polaris(
    options: StackOptions,
    *,
    aws: MotoAws,
    endpoints: Endpoints,
    vended: VendedKeys,
    identities: Identities,
    state: CatalogState,
    cleanup: contextlib.ExitStack,
) -> Polaris:
    given = options.given_polaris()
    if given is not None:
        owner, service = (
            (each.client_id, each.client_secret.get_secret_value()) for each in (given.owner, given.service)
        )
        scopes = (given.owner.scope, given.service.scope)
        return Polaris(
            given.url,
            given.warehouse,
            owner,
            service,
            given.realm,
            *scopes,
            "given",
            public_key=options.public_key(),
        )
    catalog = LocalCatalog(
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
    ).start()
    cleanup.callback(catalog.stop)
    owner, service = (
        (principal.client_id, principal.client_secret.get_secret_value())
        for principal in (identities.owner, identities.service)
    )
    return Polaris(
        catalog.url,
        options.warehouse,
        owner,
        service,
        options.polaris_realm,
        DEFAULT_SCOPE,
        DEFAULT_SCOPE,
        f"a stand-in: Iceberg REST catalog with vended credentials; catalog in {options.catalog}",
        root=(ROOT_PRINCIPAL, identities.root.get_secret_value()),
        public_key=catalog.tokens.public_key_pem(),
    )
