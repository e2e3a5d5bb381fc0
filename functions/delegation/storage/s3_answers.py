"""Limits on answers of an S3 store, in bytes and in time. botocore reads an answer other than an object's content into
memory, whatever its size. The limits are added to a client's class (Boto3 documentation, Extensibility guide:
`creating-client-class`)."""

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from botocore.awsrequest import AWSResponse
from botocore.exceptions import BotoCoreError, ConnectionClosedError, HTTPClientError, ReadTimeoutError
from urllib3.exceptions import HTTPError
from urllib3.exceptions import ReadTimeoutError as NotRead

from delegation.storage.delete_answers import MOST_BYTES, root_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

MOST_SECONDS = 120.0
# Under this name it states that an answer of status 200 is neither a result nor an error of S3, such as a proxy's page.
FOREIGN = "DelegationForeign"
_LISTINGS = {
    "ListObjectsV2": "ListBucketResult",
    "ListObjectVersions": "ListVersionsResult",
}
_PIECE = 65_536


class AnswerNotRead(BotoCoreError):
    """An answer has more than `most` bytes."""

    fmt = "the answer has more than {most} bytes"


class Session(Protocol):
    """botocore's HTTP session, which sends a client's requests."""

    def send(self, request: Any) -> AWSResponse: ...

    def close(self) -> None: ...


class BoundedSession:
    """Sends requests and reads answers, except objects' content, up to the limits. Raises AnswerNotRead, which botocore
    does not retry, or botocore's connection errors."""

    def __init__(self, session: Session, *, most: int = MOST_BYTES, seconds: float = MOST_SECONDS) -> None:
        self._session = session
        self._most = most
        self._seconds = seconds

    def send(self, request: Any) -> AWSResponse:
        content_wanted = request.stream_output
        request.stream_output = True
        answer = self._session.send(request)
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
    """Mark an answer to a listing that is not one; botocore would read it as empty, or retry it."""

    def mark(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], *, root: str, **_: Any) -> None:
        if response_dict["status_code"] == 200 and root_of(response_dict["body"]) not in {root, "Error"}:
            customized_response_dict[FOREIGN] = True
            response_dict["body"] = b""

    for operation, root in _LISTINGS.items():
        client.meta.events.register(f"before-parse.*.{operation}", partial(mark, root=root))


class _Body:
    """An answer's body, with the interface that AWSResponse reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self) -> "Iterator[bytes]":
        yield self._data


def bound_answers(base_classes: list[type], seconds: float = MOST_SECONDS, **_: Any) -> None:
    """Have a class's clients send with a BoundedSession; handles `creating-client-class`."""

    class Bounded:
        def __init__(self, *arguments: Any, endpoint: Any, **more: Any) -> None:
            endpoint.http_session = BoundedSession(endpoint.http_session, seconds=seconds)
            super().__init__(*arguments, endpoint=endpoint, **more)  # type: ignore[call-arg]

    base_classes.insert(0, Bounded)
