"""Revocation lists as objects in S3, with the authorizer's own role."""

from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from delegation.edge.errors import RevocationListUnavailable
from delegation.edge.trust.revocation import MOST_BYTES, Fetch, Fetched
from delegation.edge.trust.settings import s3_object
from delegation.wiring.clients import aws

_WITHIN_A_REQUEST: Final = Config(
    connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 2}
)
"""Two attempts and a fetch of token keys end within the authorizer's 10 s."""
_NOT_MODIFIED: Final = 304


def s3_fetch(client: Any = None) -> Fetch:
    """Return a function that fetches an object unless it still has the given ETag (Amazon S3 API, "GetObject").

    It raises RevocationListUnavailable. Without `s3:ListBucket` S3 answers AccessDenied for an object that is absent.
    """
    s3 = client or aws("s3", _WITHIN_A_REQUEST)

    def fetch(url: str, version: str | None) -> Fetched | None:
        bucket, key = s3_object(url)
        condition = {} if version is None else {"IfNoneMatch": version}
        try:
            answer = s3.get_object(Bucket=bucket, Key=key, **condition)
            data: bytes = answer["Body"].read(MOST_BYTES + 1)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == _NOT_MODIFIED:
                return None
            code = error.response.get("Error", {}).get("Code", "unknown")
            raise RevocationListUnavailable(f"S3 refused the revocation list {url}: {code}") from None
        except (BotoCoreError, OSError) as error:
            raise RevocationListUnavailable(
                f"the revocation list {url} cannot be fetched: {type(error).__name__}"
            ) from None
        return Fetched(data, answer.get("ETag"))

    return fetch
