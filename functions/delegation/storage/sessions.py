"""boto3 sessions that share botocore's service descriptions.

Loading them takes 12 MB and a tenth of a second per client; executors and Lambda functions create three each.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader

from delegation.storage.base import ObjectStoreError
from delegation.storage.credentials import S3Settings
from delegation.storage.s3_answers import MOST_SECONDS, bound_answers

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# Descriptions that are part of botocore: the same for every account and session.
_LOADER: Loader = create_loader()


def new_session() -> boto3.session.Session:
    """Return a session that finds credentials and settings as `boto3.session.Session()` does."""
    core = botocore.session.get_session()
    core.register_component("data_loader", _LOADER)
    return boto3.session.Session(botocore_session=core)


def s3_client(settings: S3Settings, *, answer_seconds: float = MOST_SECONDS, **more: Any) -> "S3Client":
    """Return an S3 client whose answers are read up to a limit of bytes and seconds.

    Raises ObjectStoreError for an invalid endpoint, region or profile.
    """
    try:
        session = new_session()
        session.events.register("creating-client-class.s3", partial(bound_answers, seconds=answer_seconds))
        return session.client("s3", endpoint_url=settings.endpoint, region_name=settings.region, **more)
    except (BotoCoreError, ValueError) as error:
        raise ObjectStoreError(f"cannot create an S3 client: {error}") from error
