"""boto3 sessions and S3 clients with shared service descriptions and limits on answers in bytes and time.

Sessions share botocore's service descriptions, which cost 12 MB and a tenth of a second per client. botocore reads
every answer but an object's content into memory, whatever its size. So limits are added to a client's class (Boto3
documentation, Extensibility guide: `creating-client-class`).
"""

import time
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

import boto3
import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.exceptions import BotoCoreError, ConnectionClosedError, HTTPClientError, ReadTimeoutError
from botocore.loaders import Loader, create_loader
from botocore.utils import parse_timestamp
from urllib3.exceptions import HTTPError
from urllib3.exceptions import ReadTimeoutError as NotRead

from delegation.storage.base import ObjectStoreError
from delegation.storage.credentials import S3Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

# Enough for a thousand keys of 1,024 bytes, escaped, with a message each.
MOST_BYTES = 8 * 1024 * 1024
# The root element's tag ends within this number of bytes.
LATEST_START = 4_096
MOST_SECONDS = 120.0
# The key that marks an answer of status 200 that is neither a result nor an error of S3, such as a proxy's page.
FOREIGN = "DelegationForeign"
_LISTINGS = {
    "ListObjectsV2": "ListBucketResult",
    "ListObjectVersions": "ListVersionsResult",
}
_PIECE = 65_536


class AnswerNotRead(BotoCoreError):
    """An answer has more than `most` bytes."""

    fmt = "the answer has more than {most} bytes"


class BoundedSession:
    """Sends requests and reads answers, except objects' content, up to the limits. Raises AnswerNotRead, which botocore
    does not retry, or botocore's connection errors."""

    def __init__(self, session: Any, *, most: int = MOST_BYTES, seconds: float = MOST_SECONDS) -> None:
        self._session = session
        self._most = most
        self._seconds = seconds

    def send(self, request: Any) -> AWSResponse:
        content_wanted = request.stream_output
        request.stream_output = True
        answer: AWSResponse = self._session.send(request)
        if content_wanted and answer.status_code < 300:
            return answer
        body = _Body(self._read(answer.raw, str(request.url)))
        return AWSResponse(answer.url, answer.status_code, answer.headers, body)  # type: ignore[arg-type]

    def close(self) -> None:
        self._session.close()

    def _read(self, raw: Any, url: str) -> bytes:
        try:
            data = self._read_all(raw, url)
        except NotRead as error:
            raise ReadTimeoutError(endpoint_url=url, error=error) from error
        except HTTPError as error:
            raise ConnectionClosedError(endpoint_url=url, error=error) from error
        except OSError as error:
            raise HTTPClientError(error=error) from error
        raw.release_conn()
        return data

    def _read_all(self, raw: Any, url: str) -> bytes:
        ends, data, ended = time.monotonic() + self._seconds, bytearray(), False
        try:
            while piece := raw.read1(_PIECE):
                data += piece
                if len(data) > self._most:
                    raise AnswerNotRead(most=self._most)
                if time.monotonic() > ends:
                    raise ReadTimeoutError(endpoint_url=url)
            ended = True
        finally:
            if not ended:
                raw.close()
        return bytes(data)


def mark_foreign_listings(client: "S3Client") -> None:
    """Mark an answer to a listing that is not a listing. botocore would read it as empty, or retry it."""

    def mark(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], *, root: str, **_: Any) -> None:
        if response_dict["status_code"] == 200 and root_of(response_dict["body"]) not in {root, "Error"}:
            customized_response_dict[FOREIGN] = True
            response_dict["body"] = b""

    for operation, root in _LISTINGS.items():
        client.meta.events.register(f"before-parse.*.{operation}", partial(mark, root=root))


class _Body:
    """The body of an answer, with the interface that AWSResponse reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self) -> "Iterator[bytes]":
        yield self._data


def bound_answers(base_classes: list[type], seconds: float = MOST_SECONDS, **_: Any) -> None:
    """Make a class's clients send with a BoundedSession. Handles `creating-client-class`."""

    class Bounded:
        def __init__(self, *arguments: Any, endpoint: Any, **more: Any) -> None:
            endpoint.http_session = BoundedSession(endpoint.http_session, seconds=seconds)
            super().__init__(*arguments, endpoint=endpoint, **more)  # type: ignore[call-arg]

    base_classes.insert(0, Bounded)


def root_of(body: bytes) -> str:
    """Return the name of an answer's root element, "" if it is not XML. botocore does not check it."""
    names: list[str] = []
    parser = expat.ParserCreate("utf-8", "}")
    parser.StartElementHandler = lambda name, _: names.append(name)
    try:
        parser.Parse(body[:LATEST_START], False)
    except expat.ExpatError:
        return ""
    return names[0].rpartition("}")[2] if names else ""


# botocore's own descriptions, the same for every account and session.
_LOADER: Loader = create_loader()


def new_session() -> boto3.session.Session:
    return boto3.session.Session(botocore_session=_core())


def _core() -> botocore.session.Session:
    core = botocore.session.get_session()
    core.register_component("data_loader", _LOADER)
    return core


def time_of(value: Any) -> datetime:
    """Parse a time like botocore's `parse_timestamp`, with the same errors, but in 0.1 µs instead of 28 µs for S3's ISO
    8601 in UTC."""
    if isinstance(value, str) and value.endswith("Z"):
        with suppress(ValueError):
            return datetime.fromisoformat(value)
    return parse_timestamp(value)


def s3_client(settings: S3Settings, *, answer_seconds: float = MOST_SECONDS, **more: Any) -> "S3Client":
    """Return an S3 client with limits on its answers in bytes and seconds. Raises ObjectStoreError for an invalid
    endpoint, region or profile."""
    try:
        core = _core()
        # This session owns the factory.
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=time_of)
        session = boto3.session.Session(botocore_session=core)
        session.events.register("creating-client-class.s3", partial(bound_answers, seconds=answer_seconds))
        client = session.client("s3", endpoint_url=settings.endpoint, region_name=settings.region, **more)
    except (BotoCoreError, ValueError) as error:
        raise ObjectStoreError(f"cannot create an S3 client: {error}") from error
    mark_foreign_listings(client)
    return client
