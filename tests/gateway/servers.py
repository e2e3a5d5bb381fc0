"""The Iceberg project's own REST server, and the gateway in front of it, each as a process of its own."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.environment.functions import GATEWAY
from infra.local.aws.dynamodb import DynamoDbLocal, fetch, java
from infra.local.catalog.layout import ALLOW_OVERLAP, ALLOW_PURGE, ALLOW_UNSTRUCTURED, PURGE_VIEWS
from infra.local.catalog.persisted import PersistedState
from infra.local.catalog.state import CatalogState, MemoryState
from infra.local.front.balancer import CatalogBalancer
from infra.local.lambdas.functions import FunctionSpec, LambdaPool
from infra.local.processes.programs import LOOPBACK, TetheredProcess, answers, free_port
from tests.integration.local import catalog_world
from tests.persistence.contract.backends import local_backend

POM = Path(__file__).with_name("iceberg-rest-pom.xml")
BASE_PATH = "/api/catalog"
_START_SECONDS = 90


def jars() -> Path:
    """Return the folder with the server and its compatibility kit; raises UnavailableError without Maven."""
    return fetch(POM, "iceberg-rest")


@contextlib.contextmanager
def iceberg_server(folder: Path) -> Iterator[str]:
    """Run the server on files below `folder`, without authentication; raises UnavailableError without Java."""
    port = free_port()
    (folder / "warehouse").mkdir(parents=True)
    environment = {
        **os.environ,
        "CATALOG_REST_PORT": str(port),
        "CATALOG_URI": f"jdbc:sqlite:file:{folder / 'catalog.sqlite'}",
        "CATALOG_WAREHOUSE": str(folder / "warehouse"),
    }
    command = [java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*"]
    process = TetheredProcess.start(
        [*command, "org.apache.iceberg.rest.RESTCatalogServer"], env=environment, log=folder / "server.log"
    )
    try:
        process.wait_until(
            "Iceberg's REST server", lambda: answers(port, path="/v1/config"), timeout_seconds=_START_SECONDS
        )
        yield f"http://{LOOPBACK}:{port}"
    finally:
        process.stop()


@dataclass(frozen=True, slots=True)
class CatalogUnderTest:
    """The base of a catalog's REST API, and the properties by which clients reach it."""

    url: str
    properties: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def stand_in(folder: Path, state: str) -> Iterator[CatalogUnderTest]:
    """Run the stand-in of Polaris on a state in `memory` or, in DynamoDB Local, in the `persistence`.

    It allows what Iceberg's own server does. Raises UnavailableError without Java.
    """
    with contextlib.ExitStack() as running:
        kept: CatalogState = MemoryState()
        if state == "persistence":
            folder.mkdir(parents=True)
            dynamodb = DynamoDbLocal(log=folder / "dynamodb.log").start()
            running.callback(dynamodb.stop)
            kept = PersistedState(
                running.enter_context(local_backend(dynamodb.url)), realm=catalog_world.REALM, catalog="lake"
            )
            running.callback(kept.close)
        stack = running.enter_context(contextlib.contextmanager(catalog_world.running)(kept))
        place = {"LocationConstraint": catalog_world.REGION}
        with contextlib.suppress(stack.admin.exceptions.BucketAlreadyOwnedByYou):  # of this process's former stand-in
            stack.admin.create_bucket(Bucket=catalog_world.BUCKET, CreateBucketConfiguration=place)
        flags = dict.fromkeys((ALLOW_OVERLAP, ALLOW_UNSTRUCTURED, ALLOW_PURGE), "true")
        stack.catalog.warehouse.replace_properties({**flags, PURGE_VIEWS: "false"})
        credential = {"warehouse": "lake", "credential": "owner-id:owner-secret", "scope": catalog_world.SCOPE}
        yield CatalogUnderTest(stack.catalog.url, credential)


@contextlib.contextmanager
def gateway_before(catalog_url: str, folder: Path, *, takes_all: bool) -> Iterator[str]:
    """Run the gateway, which knows no key of callers here, and the rule before it; yield the catalog's base there.

    With `takes_all` the rule leads every request to the gateway, which then has to forward all that it does not know.
    """
    pool = LambdaPool(log_folder=folder)
    environment = {"DELEGATION_POLARIS_URL": catalog_url, "DELEGATION_GATEWAY_BASE_PATH": BASE_PATH}
    function = pool.add(
        FunctionSpec(
            GATEWAY.name, GATEWAY.handler, GATEWAY.timeout_seconds, GATEWAY.memory_mb, environment, concurrency=4
        )
    )
    balancer = CatalogBalancer(
        catalog_url=catalog_url,
        gateway=function,
        region="us-east-1",
        account="123456789012",
        base_path=BASE_PATH,
        takes_all=takes_all,
    ).start()
    try:
        yield balancer.url
    finally:
        balancer.stop()
        pool.stop()
        (folder / "events").write_text(str(balancer.to_gateway), encoding="utf-8")
