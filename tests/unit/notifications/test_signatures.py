"""The signature of a callback, as the service makes it and the client package verifies it."""

import json
from contextlib import nullcontext
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.client.callbacks import CallbackRefused, CallbackVerifier
from delegation.tasks.life.model import Status
from delegation.tasks.life.notifications import owed_by
from delegation.wire.signatures import parsed, signature
from tests.kit.tasks.builders import NOW, Clock, in_status

OLD, NEW, OTHER = ("old-" * 8, "new-" * 8, "other-" * 6)
(OWED,) = owed_by([in_status(Status.SUCCESS, notify=("callback:catalog",))])
BODY = OWED.body.encode()


def headers(*keys, time=None, key=OWED.notification_id, body=BODY):
    stamp = int(NOW.timestamp()) if time is None else time
    signed = signature([one.encode() for one in keys], time=stamp, idempotency_key=key, body=body)
    return {"idempotency-key": key, "delegation-signature": signed}


def verifier(*keys, at=NOW):
    return CallbackVerifier(keys, clock=Clock(at))


def test_a_known_value():
    """HMAC-SHA256 with the key "k" * 32, computed with OpenSSL: printf … | openssl dgst -sha256 -hmac …"""
    found = signature([b"k" * 32], time=1_795_348_800, idempotency_key="id-1", body=b'{"a":1}')
    assert found == "t=1795348800,v1=d23258cb174562bb39104afecd3af4d745b3c917e7a3d04b87990c1f25b7ebf7"


@pytest.mark.parametrize(
    ("signs", "verifies"),
    [([OLD], [OLD]), ([OLD], [NEW, OLD]), ([NEW, OLD], [OLD]), ([NEW, OLD], [NEW]), ([NEW], [NEW, OLD])],
)
def test_a_key_is_replaced_on_either_side_first(signs, verifies):
    ended = verifier(*verifies).verify(headers(*signs), BODY)
    assert (ended.task_id, ended.version, ended.succeeded) == (OWED.task_id, OWED.version, True)
    assert ended.notification_id == OWED.notification_id


@pytest.mark.parametrize("seconds", [-301, -300, 0, 300, 301, 86_400])
def test_one_that_was_captured_and_is_sent_again_later_is_refused(seconds):
    late = pytest.raises(CallbackRefused, match="300 s")
    with late if abs(seconds) > 300 else nullcontext():
        verifier(OLD, at=NOW + timedelta(seconds=seconds)).verify(headers(OLD), BODY)


@pytest.mark.parametrize(
    ("given", "body"),
    [
        (headers(OTHER), BODY),
        (headers(OLD), BODY + b" "),
        ({**headers(OLD), "idempotency-key": "another"}, BODY),
        (headers(OLD, key="another"), BODY),
        ({"idempotency-key": OWED.notification_id}, BODY),
        ({"delegation-signature": headers(OLD)["delegation-signature"]}, BODY),
        ({**headers(OLD), "delegation-signature": ""}, BODY),
        ({**headers(OLD), "delegation-signature": "t=1795348800"}, BODY),
        ({**headers(OLD), "delegation-signature": headers(OLD)["delegation-signature"].partition(",")[2]}, BODY),
        ({**headers(OLD), "delegation-signature": headers(OLD)["delegation-signature"].replace("v1", "v2")}, BODY),
        (headers(OLD, body=b"[]"), b"[]"),
        (headers(OLD, body=b"{"), b"{"),
    ],
)
def test_what_the_service_did_not_sign_is_refused(given, body):
    with pytest.raises(CallbackRefused) as refused:
        verifier(OLD).verify(given, body)
    assert OLD not in str(refused.value)


def test_a_time_that_was_moved_is_refused():
    moved = headers(OLD)["delegation-signature"].replace(f"t={int(NOW.timestamp())}", f"t={int(NOW.timestamp()) + 9}")
    with pytest.raises(CallbackRefused, match="keys"):
        verifier(OLD).verify({**headers(OLD), "delegation-signature": moved}, BODY)


@pytest.mark.parametrize("keys", [[], ["short"], [OLD, NEW, OTHER]])
def test_a_verifier_needs_one_or_two_long_keys(keys):
    with pytest.raises(ValueError, match="one or 2 keys of at least 32 bytes") as refused:
        CallbackVerifier(keys)
    assert "short" not in str(refused.value)


@given(st.text(max_size=80))
def test_any_header_is_parsed_or_refused(text):
    found = parsed(text)
    assert found is None or (found.values and text.startswith("t="))


def test_a_later_version_of_the_signature_and_a_later_member_may_be_added():
    body = json.dumps({**json.loads(BODY), "later": 1}).encode()
    signed = headers(OLD, body=body)
    ended = verifier(OLD).verify({**signed, "delegation-signature": f"{signed['delegation-signature']},v2=01"}, body)
    assert ended.model_extra == {"later": 1}
