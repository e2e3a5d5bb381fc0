"""The service's own bucket in S3, used with the service's role."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from delegation.storage.s3_errors import FAILED, translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3PlanStore:
    """A `PlanStore` in a bucket; `prefix` is put before every key."""

    def __init__(self, client: "S3Client", bucket: str, prefix: str = "") -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix

    def put(self, key: str, data: bytes) -> None:
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=data)
        except FAILED as error:
            translate(f"s3://{self._bucket}/{self._prefix}{key}", error)

    def get(self, key: str) -> bytes:
        try:
            return self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)["Body"].read()
        except FAILED as error:
            translate(f"s3://{self._bucket}/{self._prefix}{key}", error)

    def where(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    def keys(self, prefix: str) -> Iterator[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        try:
            for page in pages:
                for one in page.get("Contents", []):
                    yield one["Key"].removeprefix(self._prefix)
        except FAILED as error:
            translate(f"s3://{self._bucket}/{self._prefix}{prefix}", error)
