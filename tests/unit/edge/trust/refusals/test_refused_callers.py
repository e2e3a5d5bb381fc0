"""Who and what is not let in, case by case over real sockets: TLS, certificates, tokens, realms, headers, HTTP framing.

Each case differs in one thing from a request that is admitted. A refusal is expected with its status and its reason:
the authorizer's, which only its log has, or that of the answer. No case may reach the code behind the refusal.
"""

import ssl
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from delegation.edge.trust.authorizer import LEAF_HEADER, SERIAL_HEADER
from tests.unit.edge.conftest import Api
from tests.unit.edge.gateway import BASE
from tests.unit.edge.trust.pki import ENDPOINT, TokenMaker, alb_headers, ec_key, jwk, public_pem, unsigned
from tests.unit.edge.trust.refusals.attempts import (
    CLAIMS,
    HEADER,
    OWN_KEY,
    SIGNED,
    Case,
    changed_payload,
    claims,
    framing,
    header,
    issued,
    listed,
    of_names,
    offering,
    only,
    path,
    realm,
    token,
    with_public_key_as_secret,
)
from tests.unit.edge.trust.refusals.bench import (
    DAY,
    MAKER,
    NOW,
    OPERATOR,
    OTHER,
    SECOND_CA,
    SERIAL,
    SUBJECT,
    Attempt,
    Bench,
    Issued,
    Outcome,
    Pki,
)

POST: Final = f"POST {BASE}/v1/tasks HTTP/1.1\r\nHost: localhost\r\n".encode()
LATER: Final = NOW.timestamp() + 3600

O_EXAMPLE: Final = (NameOID.ORGANIZATION_NAME, "Example")

TLS: Final[dict[str, Case]] = {
    "no client certificate": (None, "PEER_DID_NOT_RETURN_A_CERTIFICATE", Attempt(issued=None)),
    "an unknown authority with the name of the pinned one": issued(None, "certificate signature failure", forged=True),
    "a self-signed certificate with the pinned name": issued(None, "VERIFY_FAILED", issuer=None, forged=True),
    "an expired certificate": issued(None, "certificate has expired", begins=NOW - 2 * DAY, ends=NOW - DAY),
    "a certificate that is not yet valid": issued(
        None, "certificate is not yet valid", begins=NOW + DAY, ends=NOW + 2 * DAY
    ),
    "a server's certificate": issued(None, "certificate purpose", usage=ExtendedKeyUsageOID.SERVER_AUTH),
    "a certificate for signing code": issued(None, "certificate purpose", usage=ExtendedKeyUsageOID.CODE_SIGNING),
    "a certificate that a client signed": issued(None, "invalid CA certificate", signed_by_client=True),
    "a self-signed one with the authority's name": issued(None, "VERIFY_FAILED", subject="CN=Private CA,O=Example"),
    "an RSA key of 1024 bits": issued(None, "key too weak", short_key=True),
    "TLS 1.0": (None, "UNSUPPORTED_PROTOCOL", Attempt(tls=only(ssl.TLSVersion.TLSv1))),
    "TLS 1.1": (None, "UNSUPPORTED_PROTOCOL", Attempt(tls=only(ssl.TLSVersion.TLSv1_1))),
    "no encryption": (None, "NO_SHARED_CIPHER", Attempt(tls=offering("eNULL"))),
    "a key exchange without certificate": (None, "NO_SHARED_CIPHER", Attempt(tls=offering("aNULL"))),
    "HTTP without TLS": (None, "HTTP_REQUEST", Attempt(plain=Attempt().request())),
    "HTTP/2 without TLS": (None, "WRONG_VERSION_NUMBER", Attempt(plain=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
    "a hello of SSL 2.0": (
        None,
        "UNKNOWN_PROTOCOL",
        Attempt(plain=b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + b"\x01" * 37),
    ),
    "a TLS record that is too long": (
        None,
        "PACKET_LENGTH_TOO_LONG",
        Attempt(plain=b"\x16\x03\x01\xff\xff" + bytes(70_000)),
    ),
    "application data before a handshake": (None, "UNEXPECTED_MESSAGE", Attempt(plain=b"\x17\x03\x03\x00\x05POST ")),
    "an alert before a handshake": (None, "UNEXPECTED_MESSAGE", Attempt(plain=b"\x15\x03\x03\x00\x02\x02\x28")),
}


UNPINNED: Final = "another subject or issuer"
CERTIFICATES: Final[dict[str, Case]] = {
    "another name": issued(403, UNPINNED, subject=OTHER),
    "a longer name": issued(403, UNPINNED, subject="CN=polaris2,O=Example"),
    "a part of the name": issued(403, UNPINNED, subject="CN=polaris"),
    "a name with one more part": issued(403, UNPINNED, subject="OU=x,CN=polaris,O=Example"),
    "the parts in another order": issued(403, UNPINNED, subject="O=Example,CN=polaris"),
    "the parts as one multi-valued part": issued(403, UNPINNED, subject="CN=polaris+O=Example"),
    "the parts inside the common name": issued(403, UNPINNED, subject=r"CN=polaris\,O=Example"),
    "the name in another attribute": issued(403, UNPINNED, subject="OU=polaris,O=Example"),
    "another case": issued(403, UNPINNED, subject="CN=Polaris,O=Example"),
    "a space after the name": issued(403, UNPINNED, subject=of_names(O_EXAMPLE, (NameOID.COMMON_NAME, "polaris "))),
    "a NUL in the name": issued(
        403, UNPINNED, subject=of_names(O_EXAMPLE, (NameOID.COMMON_NAME, "polaris\x00.evil.test"))
    ),
    "letters that look alike": issued(403, UNPINNED, subject="CN=pol\u0430ris,O=Example"),
    "the name twice": issued(403, UNPINNED, subject="CN=polaris,CN=polaris,O=Example"),
    "the pinned name from the other trusted authority": issued(403, UNPINNED, issuer=SECOND_CA),
    "an operator's name from the other trusted authority": issued(403, UNPINNED, subject=OPERATOR, issuer=SECOND_CA),
    "a serial number that is not pinned": (403, "serial number", Attempt(settings={"CLIENT_SERIALS": "07"})),
    "a revoked certificate": listed(403, "is revoked", SERIAL),
    "a list that is out of date": listed(403, "revocation-outdated", ends=NOW - DAY / 2),
    "a revoked certificate by a list that is out of date and allowed": listed(
        403, "is revoked", SERIAL, ends=NOW - DAY / 2, settings={"REVOCATION_OUTDATED": "admit"}
    ),
    "a list that another key signed": listed(500, "not signed by its issuer", signer="forger"),
    "a list that is none": (500, "cannot be read", Attempt(lists=lambda _pki: b"nonsense")),
    "a list that cannot be fetched": (500, "S3 is silent", Attempt(lists=lambda _pki: b"")),
}

NO_KEY: Final = "key id and algorithm"
WRONG: Final = "signature was not made"
TOKENS: Final[dict[str, Case]] = {
    "no token": token("no Authorization header", None),
    "an empty token": token("not Bearer", "Bearer "),
    "another scheme": token("not Bearer", "Basic cG9sYXJpczpzZWNyZXQ="),
    "a token without a scheme": token("not Bearer", MAKER.token()),
    "two tokens in one header": token("not a token", f"{MAKER.bearer()}, {MAKER.bearer()}"),
    "text": token("not a token", "Bearer nonsense"),
    "two parts": token("not a token", f"Bearer {SIGNED[0]}.{SIGNED[1]}"),
    "five parts, as an encrypted token has": token("not a token", f"Bearer {'.'.join([*SIGNED, 'a', 'b'])}"),
    "a token of 10,000 characters": token("too long", MAKER.bearer(more="x" * 8000)),
    "letters beyond ASCII": token("not ASCII", "Bearer é"),
    "no algorithm and no signature": token(NO_KEY, f"Bearer {unsigned(CLAIMS, {'typ': 'JWT', 'alg': 'none'})}"),
    "the algorithm none in capitals": token(NO_KEY, f"Bearer {unsigned(CLAIMS, {'typ': 'JWT', 'alg': 'NONE'})}"),
    "no signature": token(WRONG, f"Bearer {unsigned(CLAIMS, HEADER)}"),
    "the public key as a secret": token(NO_KEY, with_public_key_as_secret()),
    "a key of another kind": token(NO_KEY, TokenMaker(ec_key(), "ES256", claims=CLAIMS).bearer()),
    "another key": token(WRONG, OWN_KEY.bearer()),
    "another key, sent along": token(WRONG, OWN_KEY.bearer(headers={"jwk": jwk(OWN_KEY.key)})),
    "another key, to be fetched": token(WRONG, OWN_KEY.bearer(headers={"jku": "https://evil.test/jwks.json"})),
    "another key, in a certificate": token(WRONG, OWN_KEY.bearer(headers={"x5u": "https://evil.test/x.pem"})),
    "a key id that is a path": token(WRONG, OWN_KEY.bearer(headers={"kid": "../../../../dev/null"})),
    "changed claims": token(WRONG, changed_payload()),
    "the signature of other claims": token(
        WRONG, f"Bearer {SIGNED[0]}.{SIGNED[1]}.{MAKER.token(sub='x').split('.')[2]}"
    ),
    "an extension that must be understood": token(
        "not a token", MAKER.bearer(headers={"crit": ["urn:example:x"], "urn:example:x": 1})
    ),
    "a token that is no access token": token("neither JWT nor", MAKER.bearer(headers={"typ": "dpop+jwt"})),
    "an identity token": token("neither JWT nor", MAKER.bearer(headers={"typ": "id+jwt"})),
    "expired": claims("expired", exp=NOW.timestamp() - 60),
    "no end": claims("expired or has no expiry", exp=None),
    "an end that is text": claims("expired or has no expiry", exp="9999999999"),
    "an end beyond the year 9999": claims("expired or has no expiry", exp=1e300),
    "not yet valid": claims("not yet valid", nbf=LATER),
    "another issuer": claims("issuer is not a configured one", iss="https://evil.test"),
    "an issuer with a slash more": claims("issuer is not a configured one", iss="https://issuer.test/"),
    "two issuers": claims("issuer is not a configured one", iss=["https://issuer.test"]),
    "no issuer": claims("issuer is not a configured one", iss=None),
    "the keys of the former issuer in the name of the next": claims(
        NO_KEY,
        iss="https://next.test",
        settings={"TOKEN_NEXT_ISSUER": "https://next.test", "TOKEN_PUBLIC_KEY": public_pem(ec_key())},
    ),
    "another audience": claims("audience is not the configured one", aud="polaris"),
    "no audience": claims("audience is not the configured one", aud=None),
    "an audience although none is configured": claims("none is configured", settings={"TOKEN_AUDIENCE": ""}),
    "no client": claims("no client id", client_id=None, sub=None),
    "a client that is no text": claims("not a client id", client_id=["polaris"]),
    "another client": claims("client is not admitted", 403, client_id="spark-user"),
    "another client's name as subject": claims("client is not admitted", 403, client_id=None, sub="polaris"),
    "a client with the name of a subject": claims("client is not admitted", 403, client_id="sub:polaris"),
    "no scope": claims("lacks the scope", 403, scope=None),
    "another scope": claims("lacks the scope", 403, scope="manage_tasks"),
    "a longer scope": claims("lacks the scope", 403, scope="execute_tasks_not"),
    "the scope in capitals": claims("lacks the scope", 403, scope="EXECUTE_TASKS"),
    "scopes separated by commas": claims("lacks the scope", 403, scope="openid,execute_tasks"),
    "bound to another certificate": claims("bound to another certificate", cnf={"x5t#S256": "A" * 43}),
    "bound to a key": claims("not to a certificate", cnf={"jkt": "A" * 43}),
    "not bound although that is required": claims("binding is required", settings={"TOKEN_BINDING": "required"}),
    "an operator's scope with the certificate of Polaris": claims("lacks the scope", 403, scope="manage_tasks x"),
    "a token of Polaris with an operator's certificate": (403, "lacks the scope", Attempt(issued=Issued(OPERATOR))),
    "keys that cannot be fetched": claims(
        "cannot be fetched", 500, settings={"TOKEN_PUBLIC_KEY": "", "TOKEN_JWKS_URL": "http://127.0.0.1:9/jwks"}
    ),
    "the token in the query": path(401, "no Authorization", f"{BASE}/v1/tasks/1?access_token={MAKER.token()}"),
    "the token in a cookie": header(401, "no Authorization", f"Cookie: Authorization={MAKER.token()}", token=None),
}

MISMATCH: Final = "REALM_MISMATCH"
REALMS: Final[dict[str, Case]] = {
    "another realm": realm(MISMATCH, "OTHER", 403),
    "another case of the realm": realm(MISMATCH, "polaris", 403),
    "a space after the realm": realm(MISMATCH, "POLARIS ", 403),
    "a NUL after the realm": realm("INVALID_REQUEST", "POLARIS\x00"),
    "letters of the realm that look alike": realm(MISMATCH, "POL\u0410RIS", 403),
    "two realms": realm("INVALID_REQUEST", ["POLARIS", "OTHER"]),
    "no realm": realm("INVALID_REQUEST", None),
    "an empty realm": realm("INVALID_REQUEST", ""),
    "a realm that is a number": realm("INVALID_REQUEST", 7),
    "the realm twice in the body": (
        400,
        "INVALID_JSON",
        Attempt(
            body=Attempt().request().partition(b"\r\n\r\n")[2].replace(b'"realm_', b'"realm_identifier":"X","realm_', 1)
        ),
    ),
}

FOREIGN: Final = Issued(OTHER)
BY_OPERATOR: Final = {"issued": Issued(OPERATOR), "token": MAKER.bearer(scope="manage_tasks", client_id="ops")}
HEADERS: Final[dict[str, Case]] = {
    "a load balancer's certificate header to the public API": header(403, UNPINNED, "@leaf", issued=FOREIGN),
    "all of a load balancer's headers to the public API": header(403, UNPINNED, "@leaf", "@serial", issued=FOREIGN),
    "a load balancer's subject header": header(
        403, UNPINNED, f"X-Amzn-Mtls-Clientcert-Subject: {SUBJECT}", issued=FOREIGN
    ),
    "the headers of other proxies": header(
        403, UNPINNED, f'X-Forwarded-Client-Cert: Subject="{SUBJECT}"', f"X-SSL-Client-S-DN: {SUBJECT}", issued=FOREIGN
    ),
    "another certificate behind the load balancer": (403, UNPINNED, Attempt(issued=FOREIGN, private=True)),
    "a certificate header beside the load balancer's": header(
        403, "no client certificate", "@leaf", issued=FOREIGN, private=True
    ),
    "the same in small letters": header(403, "no client certificate", "@small", issued=FOREIGN, private=True),
    "a serial number beside the load balancer's": header(403, "serial number", "@serial", issued=FOREIGN, private=True),
    "a load balancer that does not verify": header(403, "listener", "X-Amzn-Mtls-Clientcert: x", private=True),
    "a load balancer's headers through another VPC endpoint": (
        403,
        "VPC endpoint",
        Attempt(private=True, endpoint="vpce-0ther"),
    ),
    "a VPC endpoint in a header": header(
        403, "VPC endpoint", f"X-Amzn-Vpce-Id: {ENDPOINT}", private=True, endpoint="vpce-0ther"
    ),
    "two Authorization headers": header(401, "more than one", f"Authorization: {MAKER.bearer()}"),
    "a second Authorization header in small letters": header(401, "more than one", "authorization: Bearer x"),
    "a submission by an operator": (403, "PERMISSION_MISSING", Attempt(**BY_OPERATOR)),
    "permissions in headers": header(
        403, "PERMISSION_MISSING", "permissions: submit", "X-Amzn-Authorizer-Permissions: submit", **BY_OPERATOR
    ),
    "another content type": header(415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type: text/plain"),
    "a compressed body": header(415, "UNSUPPORTED_CONTENT_ENCODING", "Content-Encoding: gzip"),
    "an idempotency key of 1,000 characters": header(400, "Idempotency-Key", f"Idempotency-Key: {'x' * 1000}"),
    "two idempotency keys": header(
        400, "Idempotency-Key", *["Idempotency-Key: 0198e1d4-3c41-7d0e-8a3e-6c1f3f0a5b21"] * 2
    ),
    "a request id of 200 characters": header(400, "X-Request-ID", f"X-Request-ID: {'x' * 200}"),
    "an open method with another verb": path(401, "no Authorization", f"{BASE}/v1/health", "POST"),
    "an open method's longer path": path(401, "no Authorization", f"{BASE}/v1/health/../tasks"),
    "an open method's path with an encoded slash": path(401, "no Authorization", f"{BASE}/v1/health%2f..%2ftasks"),
    "an open method in capitals": path(401, "no Authorization", f"{BASE}/V1/HEALTH"),
    "a path beside the base path": path(403, "Forbidden", "/delegation-service/apix/v1/health"),
    "a path above the base path": path(403, "Forbidden", "/v1/health"),
}

LENGTH, CHUNKED = "Content-Length", b"Transfer-Encoding: chunked\r\n"
FRAMING: Final[dict[str, Case]] = {
    "two lengths": framing(LENGTH, POST + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}abc"),
    "two lengths in different letters": framing(
        LENGTH, POST + b"Content-Length: 2\r\ncontent-length: 02x\r\n\r\n{}abc"
    ),
    "a list of lengths": framing(LENGTH, POST + b"Content-Length: 2, 5\r\n\r\n{}"),
    "a length with a sign": framing(LENGTH, POST + b"Content-Length: +2\r\n\r\n{}"),
    "a negative length": framing(LENGTH, POST + b"Content-Length: -1\r\n\r\n{}"),
    "a hexadecimal length": framing(LENGTH, POST + b"Content-Length: 0x2\r\n\r\n{}"),
    "a length in other digits": framing(LENGTH, POST + b"Content-Length: \xb2\r\n\r\n{}"),
    "a length with a space": framing(LENGTH, POST + b"Content-Length: 2 2\r\n\r\n{}"),
    "an empty length": framing(LENGTH, POST + b"Content-Length:\r\n\r\n{}"),
    "a length before a transfer coding": framing(
        LENGTH, POST + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"
    ),
    "a length after a transfer coding": framing(
        LENGTH, POST + CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"
    ),
    "two transfer codings": framing(
        "Transfer-Encoding", POST + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n"
    ),
    "a list of transfer codings": framing(
        "Transfer-Encoding", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    ),
    "a transfer coding that is nearly chunked": framing(
        "Transfer-Encoding", POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"
    ),
    "a space before a transfer coding's colon": framing(
        "header", POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"
    ),
    "a chunk without a size": framing("chunk", POST + CHUNKED + b"\r\n\r\n\r\n"),
    "a chunk size that is no number": framing("chunk", POST + CHUNKED + b"\r\nzz\r\n\r\n"),
    "a negative chunk size": framing("chunk", POST + CHUNKED + b"\r\n-2\r\n\r\n"),
    "a chunk size with a prefix": framing("chunk", POST + CHUNKED + b"\r\n0x2\r\n{}\r\n0\r\n\r\n"),
    "a chunk that is longer than its size": framing("chunk", POST + CHUNKED + b"\r\n2\r\n{}XX\r\n0\r\n\r\n"),
    "a chunk without an end": framing("chunk", POST + CHUNKED + b"\r\n2\r\n{}0\r\n\r\n"),
    "bytes": framing("request line", b"\x00\x01\x02\x03"),
    "bytes beyond ASCII": framing("request line", b"\xff\xfe\xfd\r\n\r\n"),
    "TLS inside TLS": framing("request line", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "no HTTP": framing("request line", b"HELLO\r\n\r\n"),
    "HTTP/0.9": framing("request line", b"GET /\r\n\r\n"),
    "HTTP/2 inside TLS": framing("request line", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "another version": framing("request line", b"GET / HTTP/9.9\r\n\r\n"),
    "something else than a version": framing("request line", b"GET / rubbish\r\n\r\n"),
    "a NUL in the request line": framing("request line", b"GET /\x00 HTTP/1.1\r\n\r\n"),
    "a request line of 70,000 bytes": framing("too long", b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n"),
    "a header without a colon": framing("header", b"GET / HTTP/1.1\r\nrubbish\r\n\r\n"),
    "a space before a header's colon": framing("header", b"GET / HTTP/1.1\r\nContent-Length : 3\r\n\r\nabc"),
    "a folded header": framing("header", b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n folded\r\n\r\n"),
    "a NUL in a header": framing("header", b"GET / HTTP/1.1\r\nA: \x00\r\n\r\n"),
    "a header without a name": framing("header", b"GET / HTTP/1.1\r\n: b\r\n\r\n"),
    "a header with a carriage return inside": framing("header", b"GET / HTTP/1.1\r\nA: b\rX: c\r\n\r\n"),
    "10,000 headers": framing("too long", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n"),
    "no host": framing("Host", b"GET / HTTP/1.1\r\nA: b\r\n\r\n"),
    "two hosts": framing("Host", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
}

CHAPTERS: Final = {
    "tls": TLS,
    "certificate": CERTIFICATES,
    "token": TOKENS,
    "realm": REALMS,
    "header": HEADERS,
    "framing": FRAMING,
}
CASES: Final = [
    pytest.param(*case, id=f"{chapter}: {name}") for chapter, cases in CHAPTERS.items() for name, case in cases.items()
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    built = Bench(tmp_path_factory.mktemp("bench"))
    yield built
    built.stop()


def filled(attempt: Attempt, pki: Pki) -> Attempt:
    """Replace `@…` by the headers of a load balancer that verified the pinned certificate."""
    named = alb_headers(pki.certificate(Issued()))
    leaf, serial = (f"{name}: {named[name]}" for name in (LEAF_HEADER, SERIAL_HEADER))
    meant = {"@leaf": leaf, "@serial": serial, "@small": leaf.replace(LEAF_HEADER, LEAF_HEADER.lower())}
    return replace(attempt, headers=tuple(meant.get(line, line) for line in attempt.headers))


def attempted(bench: Bench, api: Api, monkeypatch: pytest.MonkeyPatch, attempt: Attempt) -> Outcome:
    bench.api.handle = api.handle
    return bench.attempt(filled(attempt, bench.pki), monkeypatch)


@pytest.mark.parametrize(("status", "why", "attempt"), CASES)
def test_a_caller_is_refused(
    bench: Bench,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int | None,
    why: str,
    attempt: Attempt,
) -> None:
    outcome = attempted(bench, api, monkeypatch, attempt)
    assert (outcome.status, why in outcome.why) == (status, True), outcome
    assert outcome.received.count(b"HTTP/1.1 ") == (status is not None), "a second request was smuggled in"
    assert api.submissions.calls == 0
    # Only what depends on the body, or is no question of trust, is refused behind the authorizer.
    assert not bench.api.events or '"error_code"' in outcome.why, "the API was called for a caller that is not admitted"
    logged = "".join(capsys.readouterr()) + api.log.getvalue()
    signature = (attempt.token or "").rpartition(".")[2]
    assert len(signature) < 40 or signature not in logged + outcome.received.decode("latin-1"), "a token was shown"


@pytest.mark.parametrize(
    "attempt",
    [
        Attempt(),
        Attempt(private=True),
        Attempt(lists=lambda pki: pki.revocation_list(7)),
        Attempt(
            lists=lambda pki: pki.revocation_list(7, ends=NOW - DAY / 2), settings={"REVOCATION_OUTDATED": "admit"}
        ),
        Attempt(settings={"CLIENT_SERIALS": f"{SERIAL:x}"}),
        Attempt(headers=("@leaf", "@serial"), issued=Issued()),
    ],
    ids=["public", "private", "a list", "a list out of date that is allowed", "a serial number", "headers ignored"],
)
def test_a_usual_caller_is_admitted(bench: Bench, api: Api, monkeypatch: pytest.MonkeyPatch, attempt: Attempt) -> None:
    outcome = attempted(bench, api, monkeypatch, attempt)
    assert outcome.status == 202, outcome
    assert api.submissions.calls == 1


def test_there_are_cases_of_every_kind() -> None:
    assert {chapter: len(cases) >= 10 for chapter, cases in CHAPTERS.items()} == dict.fromkeys(CHAPTERS, True)
    assert len(CASES) >= 80
