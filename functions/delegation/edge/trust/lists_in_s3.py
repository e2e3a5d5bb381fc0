"""Revocation lists as objects in S3. Only the wiring imports this, when such lists are configured."""

from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from delegation.edge.errors import RevocationListUnavailable
from delegation.edge.trust.revocation import MOST_BYTES, Fetch, Fetched
from delegation.edge.trust.settings import s3_object

_NOT_MODIFIED: Final = 304


def s3_fetch(s3: Any) -> Fetch:
    """Return a function that fetches an object with a boto3 client, unless it still has the given ETag. It raises
    RevocationListUnavailable (Amazon S3 API, "GetObject"). Without `s3:ListBucket` S3 answers AccessDenied for a
    missing object."""

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
