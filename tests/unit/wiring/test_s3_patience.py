"""An S3 that accepts connections and never answers: every try costs a whole time-out of somebody's Lambda."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session

from delegation.edge.submission import HAND_OVER_AFTER
from delegation.storage.base import ObjectStoreUnavailable
from delegation.storage.locations import ObjectLocation, parse
from delegation.storage.s3 import WHILE_A_CALLER_WAITS, Patience, S3ObjectStore
from delegation.wiring import purge as wiring
from infra.local.front.https import INTEGRATION_TIMEOUT_SECONDS

BUDGET = 25.0
FILE: ObjectLocation = parse("s3://bucket/metadata/snap-1.avro")


class Hung:
    """Stands in for the sockets: seconds that a real one would have waited, by the client's own time-outs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waited = 0.0
        self.tries = 0
        monkeypatch.setattr(URLLib3Session, "send", lambda session, _request: self._send(session))
        monkeypatch.setattr("botocore.endpoint.time.sleep", self._wait)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")

    def _send(self, session: Any) -> Any:
        self.tries += 1
        self._wait(session._timeout.read_timeout)
        raise ReadTimeoutError(endpoint_url="https://s3")

    def _wait(self, seconds: float) -> None:
        self.waited += seconds


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Hung:
    return Hung(monkeypatch)


@pytest.mark.parametrize(
    "call", [lambda store: store.read(FILE, limit=10), lambda store: store.exists(FILE)], ids=["read", "exists"]
)
def test_a_hung_store_is_told_before_the_caller_is_gone(hung: Hung, call: Callable[[S3ObjectStore], Any]) -> None:
    """Also when the call was the last to begin before the purge is handed over."""
    with pytest.raises(ObjectStoreUnavailable):
        call(S3ObjectStore(patience=WHILE_A_CALLER_WAITS))
    assert hung.tries == WHILE_A_CALLER_WAITS.tries
    assert BUDGET * HAND_OVER_AFTER + hung.waited < INTEGRATION_TIMEOUT_SECONDS


def test_a_hung_delete_is_told_before_the_caller_is_gone(hung: Hung) -> None:
    result = S3ObjectStore(patience=WHILE_A_CALLER_WAITS).delete("bucket", ["a", "b"])
    assert {failure.code for failure in result.failed} == {"ConnectionFailed"}
    assert hung.tries == 1
    assert BUDGET * HAND_OVER_AFTER + hung.waited < INTEGRATION_TIMEOUT_SECONDS


def test_a_job_has_more_patience(hung: Hung) -> None:
    with pytest.raises(ObjectStoreUnavailable):
        S3ObjectStore().read(FILE, limit=10)
    assert hung.tries == Patience().tries


def test_a_body_that_breaks_off_is_asked_for_as_often_as_its_reader_may(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise ReadTimeoutError(endpoint_url="https://s3")

    class Client:
        asked = 0

        def get_object(self, **_: Any) -> dict[str, Any]:
            self.asked += 1
            return {"ContentLength": 3, "Body": Broken()}

    client = Client()
    store = S3ObjectStore(patience=WHILE_A_CALLER_WAITS)
    monkeypatch.setattr(store, "_client", lambda _credential: client)
    with pytest.raises(ObjectStoreUnavailable):
        store.read(FILE, limit=10)
    assert client.asked == WHILE_A_CALLER_WAITS.tries


def test_requests_are_run_with_a_callers_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_PLAN_BUCKET", "plans")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    behavior = wiring.purge_for_a_caller(None, None)  # type: ignore[arg-type]
    assert behavior.plans._client.meta.config.read_timeout == WHILE_A_CALLER_WAITS.config().read_timeout
