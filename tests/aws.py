"""moto inside the test's process, correct under threads.

moto copies its tables while it serves a transaction; when requests of two threads overlap, the copy raises, and
acknowledged writes are lost. `infra.local.aws.moto_app` does for moto's server what this module does for its mock.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import boto3
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber

from infra.local.aws.moto_shortcuts import take_shortcuts

__all__ = ["mock_aws", "s3_in_moto"]

_answer = BotocoreStubber.process_request
_one_request = threading.RLock()


def _answer_alone(stubber: BotocoreStubber, request: Any) -> Any:
    with _one_request:
        return _answer(stubber, request)


BotocoreStubber.process_request = _answer_alone  # type: ignore[method-assign]
take_shortcuts()


@contextlib.contextmanager
def s3_in_moto(*buckets: str, versioned: bool = False) -> Iterator[Any]:
    """A client of S3 in moto with these buckets, all with versions or none."""
    with mock_aws(), contextlib.closing(boto3.client("s3", region_name="us-east-1")) as client:
        for bucket in buckets:
            client.create_bucket(Bucket=bucket)
            if versioned:
                client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        yield client
