"""The service's own bucket in S3, used with the service's role."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from delegation.storage.s3_errors import FAILED, check_keys, check_listing, listing_invalid, translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3PlanStore:
    """A `PlanStore` in a bucket. `prefix` is put before every key."""

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
        uri, after = f"s3://{self._bucket}/{self._prefix}{prefix}", ""
        try:
            for page in pages:
                check_listing(self._client, uri, page)
                keys = [entry["Key"] for entry in page.get("Contents", [])]
                check_keys(self._client, uri, keys, self._prefix + prefix, after)
                yield from (key.removeprefix(self._prefix) for key in keys)
                after = keys[-1] if keys else after
                if page.get("IsTruncated") and not page.get("NextContinuationToken"):
                    raise listing_invalid(self._client, uri, "does not state where its next page begins")
        except FAILED as error:
            translate(uri, error)
