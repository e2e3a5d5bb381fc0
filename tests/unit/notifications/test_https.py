"""The POST over a real TLS connection: checked addresses, certificates, no redirect, a total time."""

import socket
from dataclasses import replace

import pytest

from delegation.notifications import https
from delegation.notifications.https import HttpsPost, NotificationError, tls
from tests.kit.errors import coded
from tests.unit.notifications.receiver import DRIP, GARBAGE, HANG_UP, REDIRECT, SLOW, Receiver

HEADERS = {"Content-Type": "application/json", "Idempotency-Key": "key-1"}
BODY = '{"status":"SUCCESS","name":"häu"}'.encode()


def here(_host, _port):
    return ["127.0.0.1"]


@pytest.fixture
def post(receiver: Receiver) -> HttpsPost:
    return HttpsPost(tls(receiver.authorities), loopback=True, resolve=here)


@pytest.mark.parametrize(("action", "status"), [(204, 204), (410, 410), (503, 503), (REDIRECT, 307)])
def test_a_body_arrives_with_its_headers_and_the_status_returns(receiver, post, action, status):
    receiver.script.append(action)
    assert post(receiver.url, HEADERS, BODY) == status
    ((headers, body),) = receiver.received
    assert body == BODY
    assert headers.items() >= HEADERS.items()
    assert headers["Host"] == f"localhost:{receiver.port}"
    assert receiver.targets == ["/hooks/catalog?id=7"]


@pytest.mark.parametrize("action", [SLOW, DRIP])
def test_a_receiver_that_is_too_slow_is_left(receiver, post, action):
    """One that sends a byte now and then would keep a socket's own time-out from ending."""
    receiver.script.append(action)
    with pytest.raises(NotificationError, match=r"did not answer within 0\.3 s", check=coded("CALLBACK_UNREACHABLE")):
        replace(post, total_seconds=0.3)(receiver.url, HEADERS, BODY)


@pytest.mark.parametrize("action", [HANG_UP, GARBAGE])
def test_a_receiver_that_speaks_no_http_is_unreachable(receiver, post, action):
    receiver.script.append(action)
    with pytest.raises(NotificationError, check=coded("CALLBACK_UNREACHABLE")) as refused:
        post(receiver.url, HEADERS, BODY)
    assert "hooks" not in str(refused.value)


def test_a_handshake_that_is_never_answered_ends(receiver, post):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://localhost:{silent.getsockname()[1]}/"
        with pytest.raises(NotificationError, match="did not answer within", check=coded("CALLBACK_UNREACHABLE")):
            replace(post, total_seconds=0.2)(url, HEADERS, BODY)


def test_nobody_listens(post):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(NotificationError, match="ConnectionRefusedError", check=coded("CALLBACK_UNREACHABLE")):
        post(f"https://localhost:{port}/", HEADERS, BODY)


def test_the_next_address_of_a_host_is_tried(receiver, post):
    assert replace(post, resolve=lambda *_: ["127.0.0.2", "127.0.0.1"])(receiver.url, HEADERS, BODY) == 200


def test_a_certificate_of_another_authority_or_host_is_refused(receiver, post):
    with pytest.raises(NotificationError, match="certificate was refused", check=coded("CALLBACK_UNREACHABLE")):
        replace(post, context=tls())(receiver.url, HEADERS, BODY)
    with pytest.raises(NotificationError, match="certificate was refused", check=coded("CALLBACK_UNREACHABLE")):
        post(receiver.url.replace("localhost", "catalog.internal"), HEADERS, BODY)
    assert receiver.received == []


def test_a_private_address_is_refused_before_a_connection(receiver, post):
    with pytest.raises(NotificationError, match=r"127\.0\.0\.1", check=coded("CALLBACK_ADDRESS_REFUSED")):
        replace(post, loopback=False)(receiver.url, HEADERS, BODY)
    assert receiver.received == []


def test_the_address_that_was_reached_is_checked_too(receiver, post, monkeypatch):
    """A public name whose connection ends at this machine, as behind a translating router."""
    connect = socket.create_connection
    monkeypatch.setattr(
        https.socket, "create_connection", lambda at, **more: connect(("127.0.0.1", receiver.port), **more)
    )
    outside = replace(post, loopback=False, resolve=lambda *_: ["8.8.8.8"])
    with pytest.raises(NotificationError, match=r"127\.0\.0\.1", check=coded("CALLBACK_ADDRESS_REFUSED")):
        outside(receiver.url, HEADERS, BODY)
    assert receiver.received == []


def test_a_name_is_resolved_once_for_each_connection(receiver, post):
    """So what was checked is what is called: a second look-up could have another answer (DNS rebinding)."""
    asked = []

    def rebinding(host, port):
        asked.append((host, port))
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    assert replace(post, resolve=rebinding)(receiver.url, HEADERS, BODY) == 200
    assert asked == [("localhost", receiver.port)]


def test_a_proxy_of_the_environment_is_not_used(receiver, post, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert post(receiver.url, HEADERS, BODY) == 200


def test_a_name_without_address_is_unreachable(post):
    with pytest.raises(NotificationError, match="cannot be resolved", check=coded("CALLBACK_UNREACHABLE")):
        HttpsPost(post.context)("https://no-such-host.invalid/", HEADERS, BODY)
