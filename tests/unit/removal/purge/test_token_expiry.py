"""A purge of an hour with tokens that last a minute, on a clock that store calls move.

S3ObjectStore calls a client that checks each call's token against the clock, as S3 does.
"""

import dataclasses
import io
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from delegation.polaris.credentials import VendedCredentials
from delegation.polaris.model import LoadedTable
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.requests import PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.storage.credentials import S3Credential
from delegation.storage.deleter import DeletePolicy, RatePolicy
from delegation.storage.s3 import S3ObjectStore
from tests.kit.lakes.lake import NOW, LakeSource, PurgedTables, busy_table

FILES = 420
TOKEN_LIFE = timedelta(seconds=60)


class Hour:
    """A table of some hundred files, a store whose calls take seconds, and a catalog that vends short tokens.

    The store's clock is `ahead` of ours, so that it refuses tokens that are valid by our clock.
    """

    def __init__(self, *, call_seconds: float = 9.0, ahead: timedelta = timedelta(0), one_key_id: bool = False) -> None:
        self.now = NOW
        self.call_seconds, self.ahead, self.one_key_id = call_seconds, ahead, one_key_id
        self.lock = threading.Lock()
        self.bench = PurgedTables()
        busy_table(self.bench.lake, "t")
        busy_table(self.bench.lake, "sibling")
        statistics = [f"s3://lake/wh/t/stats/{n:04d}.puffin" for n in range(FILES)]
        named = [{"statistics-path": path, "file-size-in-bytes": 1} for path in statistics]
        self.bench.lake.rewrite_metadata("t", {"statistics": named})
        for path in statistics:
            self.bench.lake.objects["lake", path.removeprefix("s3://lake/")] = b"x"
        self.tokens: list[S3Credential] = []
        self.refused = 0
        self.codes = ["ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"]

    def clock(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()

    def sleep(self, seconds: float) -> None:
        with self.lock:
            self.now += timedelta(seconds=seconds)

    def vend(self) -> LoadedTable:
        """Return what loadTable answers, with a new token that is valid for a minute."""
        table = LakeSource(self.bench.lake, "t").load()
        number = len(self.tokens)
        key_id = "key" if self.one_key_id else f"key-{number}"
        token = S3Credential("s3://lake/wh/t", key_id, "secret", f"token-{number}", self.now + TOKEN_LIFE)
        self.tokens.append(token)
        return dataclasses.replace(table, credentials=(token,))

    def called(self, token: S3Credential) -> None:
        """Check a call's token and move the clock by the call's duration."""
        with self.lock:
            assert token.expires_at is not None
            if self.now + self.ahead >= token.expires_at:
                code = self.codes[self.refused % len(self.codes)]
                self.refused += 1
                raise ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "S3")
            self.now += timedelta(seconds=self.call_seconds)

    def context(self, *, threads: int) -> PurgeContext:
        store = S3ObjectStore(VendedCredentials(self.vend, clock=self.clock))
        store._build = lambda credential, deleting: Client(self, credential)  # type: ignore[method-assign]
        policy = DeletePolicy(batch=1, threads=threads, pause=0.1, longest_pause=1.0, rate=RatePolicy(start=1e6))
        settings = PurgeSettings(chunk_paths=50, read_threads=1, delete=policy)
        return dataclasses.replace(
            self.bench.context("t", settings=settings),
            store=store,
            clock=self.clock,
            now=self.seconds,
            sleep=self.sleep,
        )

    def purge(self, *, threads: int = 1) -> PurgeResult:
        result = purge_table(self.context(threads=threads))
        assert self.bench.lake.below("s3://lake/wh/t/") == set()
        assert len(self.bench.lake.below("s3://lake/wh/sibling/")) > 10
        assert result.files_deleted == result.files_planned > FILES
        assert not [key for key in self.bench.plans.objects if "/failed/" in key]
        return result


class Client:
    """The boto3 methods that the store calls, with the token that the client was built with."""

    def __init__(self, hour: Hour, token: S3Credential) -> None:
        self.hour, self.token = hour, token

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        self.hour.called(self.token)
        data = self.hour.bench.lake.objects.get((Bucket, Key))
        if data is None:
            raise ClientError({"Error": {"Code": "NoSuchKey"}, "ResponseMetadata": {"HTTPStatusCode": 404}}, "S3")
        return {"ContentLength": len(data), "Body": io.BytesIO(data)}

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        return self.get_object(Bucket=Bucket, Key=Key)

    def list_objects_v2(self, *, Bucket: str, Prefix: str, MaxKeys: int) -> dict[str, Any]:
        self.hour.called(self.token)
        there = [key for bucket, key in self.hour.bench.lake.objects if bucket == Bucket and key.startswith(Prefix)]
        assert not there or Prefix.endswith("/metadata/")
        listed = [{"Key": key, "Size": 1, "LastModified": NOW} for key in sorted(there)]
        return {"Contents": listed, "ResponseMetadata": {"HTTPHeaders": {"date": "Sat, 21 Nov 2026 12:00:00 GMT"}}}

    def get_bucket_versioning(self, *, Bucket: str) -> dict[str, Any]:
        self.hour.called(self.token)
        return {}

    def delete_object(self, *, Bucket: str, Key: str, **_condition: Any) -> dict[str, Any]:
        self.hour.called(self.token)
        self.hour.bench.lake.objects.pop((Bucket, Key), None)
        return {}

    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any]) -> dict[str, Any]:
        self.hour.called(self.token)
        for one in Delete["Objects"]:
            self.hour.bench.lake.objects.pop((Bucket, one["Key"]), None)
        return {"Deleted": Delete["Objects"]}


@pytest.mark.parametrize("one_key_id", [False, True], ids=["a key id for each token", "one key id for all tokens"])
def test_a_purge_of_an_hour_with_tokens_of_a_minute_fails_no_key_and_uses_no_expired_token(one_key_id: bool) -> None:
    hour = Hour(one_key_id=one_key_id)
    hour.purge()
    assert hour.now - NOW >= timedelta(minutes=60)
    assert len(hour.tokens) >= 60
    assert hour.refused == 0


@pytest.mark.parametrize("threads", [1, 4])
def test_a_token_that_the_store_refuses_is_replaced_and_the_batch_is_repeated(
    threads: int,
) -> None:
    """The store's clock is 40 s ahead: it refuses tokens that are valid by our clock, with every error code."""
    hour = Hour(ahead=timedelta(seconds=40))
    hour.purge(threads=threads)
    assert hour.now - NOW >= timedelta(minutes=60)
    assert hour.refused > 60
