"""What of an answer may be stored: no credential, wherever it is, and no outcome that may change."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.idempotency.answers import MutationAnswer, storable

SECRET = "hush-hush"
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
CREDENTIALS = st.sampled_from([
    {"config": {"s3.secret-access-key": SECRET, "s3.region": "eu"}},
    {"config": {"token": SECRET}},
    {"config": {"adls.sas-token.account": SECRET}},
    {"config": {"a-new-kind-of-secret": SECRET}},
    {"storage-credentials": [{"prefix": "s3://b", "config": {"k": SECRET}}]},
    {"storage-credentials": SECRET},
])  # fmt: skip


def body_of(value: Any) -> bytes:
    return json.dumps(value).encode()


@given(PLAIN)
def test_a_body_without_credentials_is_stored_byte_for_byte(value: Any) -> None:
    answer = MutationAnswer(200, body_of(value))
    assert storable(answer) == answer


@given(PLAIN, CREDENTIALS, st.lists(st.sampled_from("xyz"), max_size=3))
def test_credentials_are_left_out_wherever_they_are(value: Any, credentials: dict[str, Any], path: list[str]) -> None:
    document: Any = {"metadata": value, **credentials}
    for name in path:
        document = [{name: document}]
    kept = storable(MutationAnswer(200, body_of(document)))
    assert SECRET not in kept.body.decode()
    assert not kept.is_whole


def test_only_members_of_config_known_to_be_plain_are_kept_and_leave_the_answer_whole() -> None:
    config = {"client.factory": "org.example.Factory", "client.region": "eu", "io-impl": "S3FileIO", "warehouse": "w"}
    answer = MutationAnswer(200, body_of({"config": config}))
    assert storable(answer) == answer
    secret = MutationAnswer(200, body_of({"config": {**config, "s3.session-token": SECRET}, "metadata-location": "m"}))
    assert json.loads(storable(secret).body) == {"config": config, "metadata-location": "m"}


@pytest.mark.parametrize("body", [b"token=" + SECRET.encode(), b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_is_not_stored(body: bytes) -> None:
    assert storable(MutationAnswer(200, body)) == MutationAnswer(200, is_whole=False)


def test_a_64_bit_number_beside_credentials_stays_exact() -> None:
    body = b'{"snapshot-id":9223372036854775807,"storage-credentials":[]}'
    assert storable(MutationAnswer(200, body)).body == b'{"snapshot-id":9223372036854775807}'


def test_only_headers_that_matter_are_kept() -> None:
    headers = {"ETag": "e", "content-type": "application/json", "Set-Cookie": SECRET, "X-Request-ID": "r"}
    assert storable(MutationAnswer(204, headers=headers)).headers == {"ETag": "e", "content-type": "application/json"}


@pytest.mark.parametrize(
    ("status", "is_final"),
    [
        *((status, True) for status in (200, 201, 202, 204, 400, 403, 404, 406, 409, 412, 413, 422)),
        *((status, False) for status in (100, 304, 401, 408, 419, 421, 423, 425, 429, 500, 501, 502, 503, 504)),
    ],
)
def test_only_outcomes_that_cannot_change_are_final(status: int, is_final: bool) -> None:
    assert MutationAnswer(status).is_final is is_final
