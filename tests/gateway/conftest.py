"""A local stack with the gateway, and a bucket to look into, for the tests of real clients.

Every test runs against the stand-in, whose catalog is in memory or, with CATALOG=persistence, in the persistence, and
against a real Polaris if the environment names one. Set POLARIS_URL, POLARIS_CREDENTIAL (`id:secret` of a principal
with CATALOG_MANAGE_CONTENT), POLARIS_WAREHOUSE and POLARIS_PUBLIC_KEY (the PEM file of its token broker, without which
no keys are honoured), POLARIS_S3_ENDPOINT for a store that is not AWS's with its keys in the AWS variables, and unless
it is POLARIS, POLARIS_REALM.
"""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from infra.local.aws.server import REGION
from infra.local.resources import IDEMPOTENCY_TABLE
from tests.integration.local.stack_process import StackProcess


@dataclass(frozen=True, slots=True)
class GatewayStack:
    """stack.json of a running stack whose catalog is behind the gateway."""

    document: dict[str, Any]
    has_own_store: bool = True

    def __getitem__(self, name: str) -> str:
        return str(self.document[name])

    def client(self, service: str, endpoint: str) -> Any:
        """Return a client of the stack's AWS."""
        return boto3.client(
            service,
            endpoint_url=self[endpoint],
            region_name=REGION,
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )

    def objects(self, location: str) -> list[str]:
        """Return the keys of the objects below a location, such as `s3://bucket/path`."""
        bucket, _, prefix = location.partition("://")[2].partition("/")
        if self.has_own_store:
            s3 = self.client("s3", "aws_endpoint")
        else:
            s3 = boto3.client("s3", endpoint_url=os.environ.get("POLARIS_S3_ENDPOINT"))
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [one["Key"] for page in pages for one in page.get("Contents", [])]

    def stored_keys(self) -> int:
        """Return how many idempotency records there are."""
        found = self.client("dynamodb", "dynamodb_endpoint").scan(TableName=IDEMPOTENCY_TABLE, Select="COUNT")
        return int(found["Count"])


def given_polaris() -> tuple[str, ...]:
    """Return the options of `delegation local up` for the Polaris of the environment, none without one."""
    needed = [os.environ.get(f"POLARIS_{name}", "") for name in ("URL", "CREDENTIAL", "WAREHOUSE", "PUBLIC_KEY")]
    if not all(needed):
        return ()
    url, credential, warehouse, public_key = needed
    client_id, _, secret = credential.partition(":")
    store = os.environ.get("POLARIS_S3_ENDPOINT")
    return (
        *("--polaris-url", url.rstrip("/"), "--polaris-client-id", client_id, "--polaris-client-secret", secret),
        *("--warehouse", warehouse, "--polaris-public-key", public_key),
        *("--polaris-realm", os.environ.get("POLARIS_REALM", "POLARIS")),
        *(("--s3-endpoint", store) if store else ()),
    )


@pytest.fixture(scope="session", params=["stand-in", "real"])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayStack]:
    """A stack whose drops wait for their purge, so that the bucket can be looked into afterwards."""
    given = ("--catalog", os.environ.get("CATALOG", "memory"))
    if request.param == "real":
        given = given_polaris()
    if not given:
        pytest.skip("needs a Polaris: set POLARIS_URL, POLARIS_CREDENTIAL, POLARIS_WAREHOUSE and POLARIS_PUBLIC_KEY")
    folder = tmp_path_factory.mktemp("gateway") / "state"
    process = StackProcess(folder, "--gateway", "--property", "delegation.drop.mode=wait", *given)
    try:
        yield GatewayStack(json.loads(json.dumps(process.ready())), has_own_store=request.param == "stand-in")
    finally:
        process.end(signal.SIGTERM)
