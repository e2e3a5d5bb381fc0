"""One local stack with the gateway, and a bucket to look into, for the tests of real clients."""

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from infra.local.aws.server import REGION
from infra.local.backends import WAREHOUSE_BUCKET
from infra.local.resources import IDEMPOTENCY_TABLE
from tests.integration.local.stack_process import StackProcess


@dataclass(frozen=True, slots=True)
class GatewayStack:
    """stack.json of a running stack whose catalog is behind the gateway."""

    document: dict[str, Any]

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

    def objects(self, prefix: str) -> list[str]:
        """Return the keys in the warehouse's bucket that begin with a prefix."""
        pages = self.client("s3", "aws_endpoint").get_paginator("list_objects_v2")
        return [
            one["Key"]
            for page in pages.paginate(Bucket=WAREHOUSE_BUCKET, Prefix=prefix)
            for one in page.get("Contents", [])
        ]

    def stored_keys(self) -> int:
        """Return how many idempotency records there are."""
        found = self.client("dynamodb", "dynamodb_endpoint").scan(TableName=IDEMPOTENCY_TABLE, Select="COUNT")
        return int(found["Count"])


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayStack]:
    """A stack whose drops wait for their purge, so that the bucket can be looked into afterwards."""
    process = StackProcess(
        tmp_path_factory.mktemp("gateway") / "state", "--gateway", "--property", "delegation.drop.mode=wait"
    )
    try:
        yield GatewayStack(json.loads(json.dumps(process.ready())))
    finally:
        process.end(signal.SIGTERM)
