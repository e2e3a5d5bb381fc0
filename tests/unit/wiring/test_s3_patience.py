"""S3 accepts connections and never answers: every try lasts a whole time-out."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session

from delegation.edge.submission import HAND_OVER_AFTER
from delegation.storage.base import ObjectStoreUnavailable
from delegation.storage.locations import ObjectLocation, parse
from delegation.storage.s3 import SYNCHRONOUS_TIMEOUTS, S3ObjectStore, S3Timeouts
from delegation.wiring import operations as wiring
from infra.local.front.https import INTEGRATION_TIMEOUT_SECONDS

BUDGET = 25.0
FILE: ObjectLocation = parse("s3://bucket/metadata/snap-1.avro")


class Hung:
    """Replaces the sockets, and counts the seconds until the client's time-outs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waited = 0.0
        self.tries = 0
        monkeypatch.setattr(URLLib3Session, "send", lambda session, _request: self._send(session))
        # Not `time.sleep` itself: threads of this process that other tests started would be counted.
        monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=self._wait))
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
def test_a_call_to_a_hung_store_fails_before_the_callers_time_out(hung, call):
    """Also for the last call that starts before the purge is handed over."""
    with pytest.raises(ObjectStoreUnavailable):
        call(S3ObjectStore(timeouts=SYNCHRONOUS_TIMEOUTS))
    assert hung.tries == SYNCHRONOUS_TIMEOUTS.tries
    assert BUDGET * HAND_OVER_AFTER + hung.waited < INTEGRATION_TIMEOUT_SECONDS


def test_a_hung_delete_fails_before_the_callers_time_out_and_a_job_makes_more_tries(hung: Hung) -> None:
    result = S3ObjectStore(timeouts=SYNCHRONOUS_TIMEOUTS).delete("bucket", ["a", "b"])
    assert {failure.code for failure in result.failed} == {"ConnectionFailed"}
    assert hung.tries == 1
    assert BUDGET * HAND_OVER_AFTER + hung.waited < INTEGRATION_TIMEOUT_SECONDS
    with pytest.raises(ObjectStoreUnavailable):
        S3ObjectStore().read(FILE, limit=10)
    assert hung.tries == 1 + S3Timeouts().tries


def test_an_interrupted_body_is_read_as_often_as_the_patience_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise ReadTimeoutError(endpoint_url="https://s3")

    class Client:
        calls = 0

        def get_object(self, **_: Any) -> dict[str, Any]:
            self.calls += 1
            return {"ContentLength": 3, "Body": Broken()}

    client = Client()
    store = S3ObjectStore(timeouts=SYNCHRONOUS_TIMEOUTS)
    monkeypatch.setattr(store, "_client", lambda _credential: client)
    with pytest.raises(ObjectStoreUnavailable):
        store.read(FILE, limit=10)
    assert client.calls == SYNCHRONOUS_TIMEOUTS.tries


def test_requests_run_with_the_time_outs_of_a_waiting_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_PLAN_BUCKET", "plans")
    monkeypatch.setenv("DELEGATION_REFERENCES_TABLE", "references")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(wiring, "synchronous_polaris", lambda: SimpleNamespace(generic_tables=None))
    [behavior] = wiring.synchronous_behaviors(SimpleNamespace(tasks=None))  # type: ignore[arg-type]
    assert behavior.plans._client.meta.config.read_timeout == SYNCHRONOUS_TIMEOUTS.config().read_timeout
