"""Where the keys that sign callbacks are read."""

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from delegation.notifications.https import CallbackKeysUnavailable, SigningKeys, reader
from tests.kit.tasks.builders import Clock

SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:callbacks-AbCdEf"
PARAMETER = "arn:aws:ssm:eu-central-1:123456789012:parameter/delegation/callbacks"
TEXT = '{"catalog": "a single key, which is 32 bytes or more"}'


class Store:
    """A client of Secrets Manager or of Parameter Store."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[dict[str, Any]] = []

    def _answer(self, asked: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(asked)
        if self.error is not None:
            raise self.error
        return answer

    def get_secret_value(self, **asked: Any) -> dict[str, Any]:
        return self._answer(asked, {"SecretString": TEXT})

    def get_parameter(self, **asked: Any) -> dict[str, Any]:
        return self._answer(asked, {"Parameter": {"Value": TEXT}})


@pytest.mark.parametrize(
    ("reference", "service", "asked"),
    [
        (SECRET, "secretsmanager", {"SecretId": SECRET}),
        (PARAMETER, "ssm", {"Name": PARAMETER, "WithDecryption": True}),
    ],
)
def test_a_reference_names_a_secret_or_a_parameter(reference, service, asked):
    store = Store()
    read = reader(reference, {service: store}.__getitem__)
    assert SigningKeys(read, clock=Clock())("catalog") == (b"a single key, which is 32 bytes or more",)
    assert store.calls == [asked]


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetSecretValue"), "AccessDeniedException"),
        (EndpointConnectionError(endpoint_url="https://secrets.test"), "EndpointConnectionError"),
    ],
)
def test_keys_that_cannot_be_read_are_an_error_that_names_the_reference(error, named):
    with pytest.raises(CallbackKeysUnavailable, match=named) as refused:
        SigningKeys(reader(SECRET, lambda _service: Store(error)), clock=Clock())("catalog")
    assert SECRET in str(refused.value)


def test_keys_are_read_again_after_five_minutes():
    store, clock = Store(), Clock()
    keys = SigningKeys(reader(SECRET, lambda _service: store), clock=clock)
    for _ in range(3):
        keys("catalog")
    clock.advance(timedelta(minutes=5))
    keys("catalog")
    assert len(store.calls) == 2
