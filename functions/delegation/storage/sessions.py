"""boto3 sessions that share botocore's service descriptions: 12 MB and a tenth of a second for each client."""

from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader
from botocore.utils import parse_timestamp

from delegation.storage.base import ObjectStoreError
from delegation.storage.credentials import S3Settings
from delegation.storage.s3_answers import MOST_SECONDS, bound_answers, mark_foreign_listings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# Descriptions that are part of botocore: the same for every account and session.
_LOADER: Loader = create_loader()


def new_session() -> boto3.session.Session:
    return boto3.session.Session(botocore_session=_core())


def _core() -> botocore.session.Session:
    core = botocore.session.get_session()
    core.register_component("data_loader", _LOADER)
    return core


def time_of(value: Any) -> datetime:
    """Return a time as botocore's `parse_timestamp` does and raises, but in 0.1 µs instead of 28 µs for S3's ISO 8601
    in UTC."""
    if isinstance(value, str) and value.endswith("Z"):
        with suppress(ValueError):
            return datetime.fromisoformat(value)
    return parse_timestamp(value)


def s3_client(settings: S3Settings, *, answer_seconds: float = MOST_SECONDS, **more: Any) -> "S3Client":
    """Return an S3 client with limits on its answers in bytes and seconds. Raises ObjectStoreError for an invalid
    endpoint, region or profile."""
    try:
        core = _core()
        # The factory is this session's own.
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=time_of)
        session = boto3.session.Session(botocore_session=core)
        session.events.register("creating-client-class.s3", partial(bound_answers, seconds=answer_seconds))
        client = session.client("s3", endpoint_url=settings.endpoint, region_name=settings.region, **more)
    except (BotoCoreError, ValueError) as error:
        raise ObjectStoreError(f"cannot create an S3 client: {error}") from error
    mark_foreign_listings(client)
    return client
