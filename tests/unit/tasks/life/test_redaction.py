"""Secrets that an error quotes are not stored in a task's record."""

import pytest

from delegation.tasks.errors import redacted
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import AdoptedChildren
from delegation.tasks.life.outcomes import AttemptError, ErrorClass, after_error
from delegation.tasks.life.policy import Policies
from tests.kit.tasks.builders import MINUTE, NOW, acquired, submitted

KEY = "ASIA" + "ABCDEFGH12345678"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwb2xhcmlzIn0.c2lnbmF0dXJl"
SECRETS = [
    (f"key {KEY} is not known", f"key {KEY}"),
    (f"sent {JWT} to Polaris", JWT),
    ("Authorization: Bearer abcdef1234567890", "abcdef1234567890"),
    ("POST /tokens?client_secret=hunter2&scope=a answered 401", "hunter2"),
    ('{"s3.secret-access-key": "wJalrXUtnFEMI/K7MDENG", "region": "eu"}', "wJalrXUtnFEMI/K7MDENG"),
    ("GET https://b.s3.test/k?X-Amz-Signature=0a1b2c3d4e&X-Amz-Expires=60", "0a1b2c3d4e"),
    ("jdbc: password='hunter 2' refused", "hunter"),
    ("https://owner:hunter2@polaris.test/api answered 503", "hunter2"),
]
HARMLESS = [
    "attempt 3 no longer holds task 5: token expired, credential: AccessDenied",
    "s3://bucket/warehouse/orders/day=2026-11-21/part-0.parquet could not be deleted",
    "3 keys: the access key has no right to delete",
    "the bearer of this lease; basic checks passed; https://polaris.test:8181/a@b",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_are_hidden(text: str, secret: str) -> None:
    assert secret not in redacted(text)
    assert "***" in redacted(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_the_record_of_an_error_contains_no_secrets(text: str, secret: str) -> None:
    held = acquired(submitted())
    parent = held.evolve(family=AdoptedChildren(children=("child",)))
    parked = AttemptError("X", text, ErrorClass.PERMANENT, extended=text)
    for after in (
        t.fail(held, NOW, code="X", summary=text),
        t.fail(held, NOW, code="X", summary="failed", extended=text),
        after_error(parent, parked, NOW, Policies.from_properties({})),
        t.schedule_retry(held, NOW, at=NOW, grace=MINUTE, code="X", summary=text),
    ):
        assert secret not in after.model_dump_json()
