"""Variables for which a process has no room are in an object in S3."""

import json

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from delegation import wiring
from delegation.environment import SETTINGS_OBJECT, StoredSettingsError, fetch_with, stored_variables
from delegation.wiring.settings import TaskSettings

URL = "s3://assets/settings.json"


class OneObject:
    """The S3 client of boto3 for one object; `failure` is raised instead of it."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, "OneObject"]:
        assert (Bucket, Key) == ("assets", "settings.json")
        if self.failure is not None:
            raise self.failure
        return {"Body": self}

    def read(self) -> bytes:
        return json.dumps({"DELEGATION_PROPERTIES": '{"delegation.limits.all": "7"}'}).encode()


@pytest.fixture(autouse=True)
def _nothing_is_cached(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(SETTINGS_OBJECT, URL)
    monkeypatch.setenv("DELEGATION_TASKS_TABLE", "tasks")
    monkeypatch.delenv("DELEGATION_PROPERTIES", raising=False)
    stored_variables.cache_clear()
    yield
    stored_variables.cache_clear()
    fetch_with("s3", wiring.fetch_settings)


def test_an_absent_variable_is_read_from_the_object_and_a_present_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegation.wiring.clients.aws", lambda *_: OneObject())
    assert TaskSettings.read().properties == {"delegation.limits.all": "7"}
    assert TaskSettings.read().tasks_table == "tasks"
    monkeypatch.setenv("DELEGATION_PROPERTIES", '{"delegation.limits.all": "8"}')
    assert TaskSettings.read().properties == {"delegation.limits.all": "8"}


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (ClientError({"Error": {"Code": "AccessDenied"}}, "GetObject"), "cannot be read: AccessDenied"),
        (EndpointConnectionError(endpoint_url="https://s3"), "cannot be read: EndpointConnectionError"),
    ],
)
def test_an_object_that_cannot_be_read_is_named_with_the_reason(monkeypatch, failure, reason):
    monkeypatch.setattr("delegation.wiring.clients.aws", lambda *_: OneObject(failure))
    with pytest.raises(StoredSettingsError, match=f"{SETTINGS_OBJECT}: {URL} {reason}"):
        TaskSettings.read()


@pytest.mark.parametrize(
    ("text", "reason"), [("{", "is not JSON"), ("[]", "must be a JSON object"), ('{"A": 1}', "must be a JSON object")]
)
def test_an_object_that_is_something_else_is_refused(text: str, reason: str) -> None:
    fetch_with("s3", lambda _url: text)
    with pytest.raises(StoredSettingsError, match=reason):
        TaskSettings.read()


def test_a_url_of_another_scheme_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTINGS_OBJECT, "file:///settings.json")
    with pytest.raises(StoredSettingsError, match="has none of the schemes"):
        TaskSettings.read()
