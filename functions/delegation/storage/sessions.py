"""Sessions of boto3 whose clients share what botocore knows of a service.

A client of its own knowledge takes 12 MB and a tenth of a second to make; an executor makes three, a Lambda as many.
"""

from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader

from delegation.storage.base import ObjectStoreError
from delegation.storage.credentials import S3Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# Only descriptions that ship with botocore: nothing of an account, and the same for every session.
_KNOWLEDGE: Loader = create_loader()


def new_session() -> boto3.session.Session:
    """A session that finds credentials and settings anew, as `boto3.session.Session()` does."""
    core = botocore.session.get_session()
    core.register_component("data_loader", _KNOWLEDGE)
    return boto3.session.Session(botocore_session=core)


def s3_client(settings: S3Settings, **more: Any) -> "S3Client":
    """A client of S3; raises ObjectStoreError for an endpoint, a region or a profile that cannot be."""
    try:
        return new_session().client("s3", endpoint_url=settings.endpoint, region_name=settings.region, **more)
    except (BotoCoreError, ValueError) as error:
        raise ObjectStoreError(f"no client for S3: {error}") from error
