"""The HTTPS front: API Gateway's mutual TLS, events, authorizer and gateway responses."""

import contextlib
import http.client
import json
import os
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from cryptography import x509

from delegation.wire.responses import ERROR_PAGE
from infra.local.errors import CannotStartError
from infra.local.front.apigateway import LocalApiGateway
from infra.local.front.http11 import REQUEST_LIMIT_BYTES
from infra.local.front.https import Front, TlsFiles
from infra.local.identities import CertificateAuthority
from infra.local.lambdas.functions import FunctionSpec, LambdaPool

HANDLERS = Path(__file__).parent / "fixtures"
BASE = "/delegation-service/api"


def refusal(code, message):
    return {"error_code": code, "message": message, "type": f"{ERROR_PAGE}#{code}"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return CertificateAuthority.create(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def client_pair(authority):
    return authority.issue_client("polaris")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    pool = LambdaPool(log_folder=tmp_path_factory.mktemp("logs"))
    for name in ("api", "authorizer"):
        pool.add(FunctionSpec(name, f"local_handlers.{name}", 30, 512, {"PYTHONPATH": str(HANDLERS)}))
    yield pool
    pool.stop()


def front(pool, authority, **options):
    server = authority.issue_server()
    return Front(
        api=pool.function("api"),
        authorizer=pool.function("authorizer"),
        tls=TlsFiles(server.cert, server.key, authority.files.cert),
        gateway=LocalApiGateway("localhost", BASE, "us-east-1", "123456789012"),
        **options,
    ).start()


@pytest.fixture(scope="module")
def url(pool, authority):
    server = front(pool, authority)
    yield server.url
    server.stop()


def trusting(authority, pair=None):
    context = ssl.create_default_context(cafile=str(authority.files.cert))
    if pair:
        context.load_cert_chain(pair.cert, pair.key)
    return context


@contextlib.contextmanager
def connected(url, context):
    connection = http.client.HTTPSConnection(urlsplit(url).netloc, context=context, timeout=60)
    with contextlib.closing(connection):
        yield connection


@pytest.fixture
def call(url, authority, client_pair):
    """Send one request on a new connection; return status, headers and body."""
    context = trusting(authority, client_pair)

    def call(method, path, body=None, token="allow", **headers):
        named = {"Authorization": token, **headers} if token else headers
        with connected(url, context) as connection:
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    return call


def test_without_a_client_certificate_the_handshake_fails(url, authority):
    with connected(url, trusting(authority)) as connection, pytest.raises(ssl.SSLError):
        connection.connect()


def test_a_certificate_of_another_authority_fails_the_handshake(url, authority, tmp_path):
    stranger = CertificateAuthority.create(tmp_path).issue_client("polaris")
    with connected(url, trusting(authority, stranger)) as connection, pytest.raises(ssl.SSLError):
        connection.connect()


def test_a_server_certificate_of_the_authority_is_no_client_certificate(url, authority):
    server = authority.issue_server(name="not-a-client")
    with connected(url, trusting(authority, server)) as connection, pytest.raises(ssl.SSLError):
        connection.connect()


def test_the_event_is_that_of_the_proxy_integration(call, client_pair):
    path = f"{BASE}/v1/tasks/a%20b?x=1&x=2&empty="
    status, _, body = call("POST", path, '{"id": 9007199254740993}', **{"X-Request-ID": "r-1"})
    assert status == 200
    event = json.loads(body)
    assert event["body"] == '{"id": 9007199254740993}'
    assert event["isBase64Encoded"] is False
    assert (event["httpMethod"], event["resource"]) == ("POST", "/{proxy+}")
    assert event["path"] == f"{BASE}/v1/tasks/a b"
    assert event["pathParameters"] == {"proxy": "v1/tasks/a b"}
    assert event["queryStringParameters"] == {"x": "2", "empty": ""}
    assert event["multiValueQueryStringParameters"] == {"x": ["1", "2"], "empty": [""]}
    assert event["headers"]["X-Request-ID"] == "r-1"
    assert event["multiValueHeaders"]["X-Request-ID"] == ["r-1"]
    assert event["headers"]["X-Forwarded-Proto"] == "https"
    context = event["requestContext"]
    assert context["authorizer"] == {"principalId": "polaris", "client_id": "p1", "level": "3", "ok": "true"}
    assert (context["stage"], context["path"]) == ("live", f"{BASE}/v1/tasks/a%20b")
    certificate = x509.load_pem_x509_certificate(client_pair.cert.read_bytes())
    presented = context["identity"]["clientCert"]
    assert presented["clientCertPem"] == client_pair.cert.read_text()
    assert presented["subjectDN"].endswith(",CN=polaris")
    assert presented["issuerDN"].endswith(",CN=Local CA")
    assert int(presented["serialNumber"].replace(":", ""), 16) == certificate.serial_number
    assert presented["validity"]["notAfter"].endswith(" GMT")


def test_an_empty_body_is_null_and_a_binary_one_is_encoded(call):
    assert json.loads(call("GET", f"{BASE}/v1/config")[2])["body"] is None
    event = json.loads(call("POST", f"{BASE}/v1/tasks", b"\x00\xff")[2])
    assert (event["body"], event["isBase64Encoded"]) == ("AP8=", True)


def test_a_chunked_body_arrives_complete(call):
    assert json.loads(call("POST", f"{BASE}/v1/tasks", iter([b"one,", b"two"]))[2])["body"] == "one,two"


def test_an_answer_is_passed_byte_for_byte(call):
    status, headers, body = call("GET", f"{BASE}/v1/bytes")
    assert (status, body) == (202, '{"b":1,  "a":\u00a02}\n'.encode())
    assert headers.get_all("X-Two") == ["1", "2"]
    assert headers["x-amzn-RequestId"]
    status, headers, body = call("GET", f"{BASE}/v1/binary")
    assert (status, body, headers["Content-Type"]) == (200, b"\x00\xff", "application/octet-stream")
    assert headers["x-amzn-Remapped-WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("token", "status", "body"),
    [
        (None, 401, refusal("UNAUTHORIZED", "a valid access token is needed")),
        ("deny", 403, refusal("FORBIDDEN", "User is not authorized to access this resource with an explicit deny")),
        ("other", 403, refusal("FORBIDDEN", "User is not authorized to access this resource")),
        ("broken", 500, refusal("INTERNAL_ERROR", "the authorizer failed")),
    ],
)
def test_an_unauthorized_caller_gets_the_gateway_response_as_deployed(call, token, status, body):
    seen, headers, text = call("GET", f"{BASE}/v1/config", token=token)
    assert (seen, json.loads(text)) == (status, body)
    assert headers["WWW-Authenticate"] == ("Bearer" if status == 401 else None)


def test_the_authorizer_is_invoked_for_every_request(url, authority, client_pair):
    with connected(url, trusting(authority, client_pair)) as connection:
        statuses = []
        for token in ("allow", "deny", "allow"):
            connection.request("GET", f"{BASE}/v1/config", headers={"Authorization": token})
            statuses.append((response := connection.getresponse()).status)
            response.read()
        assert statuses == [200, 403, 200]
        assert connection.sock is not None, "the connection was kept alive"


@pytest.mark.parametrize("path", ["raise", "malformed"])
def test_a_failing_integration_is_a_bad_gateway(call, path):
    status, _, body = call("GET", f"{BASE}/v1/{path}")
    assert (status, json.loads(body)) == (502, refusal("INTERNAL_ERROR", "Internal server error"))


@pytest.mark.parametrize("path", ["/", "/elsewhere", f"{BASE}x/v1/config"])
def test_a_path_outside_the_base_path_is_forbidden(call, path):
    status, _, body = call("GET", path)
    assert (status, json.loads(body)) == (403, {"message": "Forbidden"})


def test_unknown_routes_reach_the_function(call):
    assert json.loads(call("DELETE", f"{BASE}/no/such/route")[2])["pathParameters"] == {"proxy": "no/such/route"}
    assert json.loads(call("GET", BASE)[2])["resource"] == "/"


@pytest.mark.parametrize("size", [6 * 1024 * 1024, REQUEST_LIMIT_BYTES + 1])
def test_a_request_larger_than_lambda_accepts_is_refused(call, size):
    status, _, body = call("POST", f"{BASE}/v1/tasks", b"x" * size)
    answer = json.loads(body)
    assert (status, answer["error_code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert answer["type"] == f"{ERROR_PAGE}#PAYLOAD_TOO_LARGE"
    assert "send only location, table-uuid and format-version" in answer["message"]


@pytest.mark.parametrize("length", ["-1", "ten"])
def test_an_invalid_content_length_is_refused(url, authority, client_pair, length):
    with connected(url, trusting(authority, client_pair)) as connection:
        connection.putrequest("POST", f"{BASE}/v1/tasks")
        connection.putheader("Content-Length", length)
        connection.endheaders()
        assert connection.getresponse().status == 400


def test_a_slow_integration_is_a_gateway_time_out_and_continues(pool, authority, client_pair, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    server = front(pool, authority, integration_timeout_seconds=0.2)
    try:
        with connected(server.url, trusting(authority, client_pair)) as connection:
            path = f"{BASE}/v1/slow?fifo={quote(str(fifo))}"
            connection.request("GET", path, headers={"Authorization": "allow"})
            response = connection.getresponse()
            late = refusal("TIMEOUT", "the service did not answer in time")
            assert (response.status, json.loads(response.read())) == (504, late)
            assert response.headers["Retry-After"] == "2"
        # The function still waits for this end of the pipe.
        fifo.open("wb").close()
    finally:
        server.stop()


def test_callers_are_served_in_parallel(call):
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: call("POST", f"{BASE}/v1/tasks", str(n)), range(24)))
    assert sorted(int(json.loads(body)["body"]) for _, _, body in answers) == list(range(24))


def test_a_port_in_use_is_reported(url, pool, authority):
    with pytest.raises(CannotStartError, match="cannot be used"):
        front(pool, authority, port=urlsplit(url).port)
