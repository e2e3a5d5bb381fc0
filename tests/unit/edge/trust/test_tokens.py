"""Tokens are verified by signature, issuer, audience, times and scope."""

import base64
import traceback
from dataclasses import replace
from datetime import timedelta
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.edge.errors import Forbidden, Unauthorized
from delegation.edge.trust.tokens import (
    KeySource,
    Principal,
    StaticKeys,
    TokenBinding,
    TokenVerifier,
    TrustedIssuer,
    bearer_token,
    client_text,
    public_key,
    require_binding,
    require_client,
    require_scope,
)
from tests.kit.errors import coded
from tests.unit.edge.trust.pki import NOW, TokenMaker, ec_key, ed_key, public_pem, rsa_key, unsigned

KEYS = {"RS256": rsa_key, "RS512": rsa_key, "PS384": rsa_key, "ES256": ec_key, "EdDSA": ed_key}


def verifier(keys: KeySource | None = None, *, audience: str | None = "delegation", **options: Any) -> TokenVerifier:
    first = TrustedIssuer("https://issuer.test", keys or StaticKeys((public_key(public_pem(rsa_key())),)), audience)
    return TokenVerifier((first,), clock=lambda: NOW, **options)


MAKER = TokenMaker(rsa_key())


@pytest.mark.parametrize("algorithm", KEYS)
def test_each_asymmetric_algorithm_is_accepted_with_its_key(algorithm: str) -> None:
    key = KEYS[algorithm]()
    maker = TokenMaker(key, algorithm)
    found = verifier(StaticKeys((public_key(public_pem(key)),))).verify(maker.bearer())
    assert found == Principal("polaris", "service-account-polaris", frozenset({"openid", "execute_tasks"}))


@pytest.mark.parametrize(
    ("claims", "client"),
    [
        ({"client_id": "c", "azp": "a", "sub": "s"}, "c"),
        ({"client_id": None, "azp": "a", "sub": "s"}, "a"),
        ({"client_id": None, "sub": "s"}, "sub:s"),
    ],
)
def test_the_client_id_is_the_first_of_three_claims(claims: dict[str, Any], client: str) -> None:
    assert verifier().verify(MAKER.bearer(**claims)).client_id == client


@pytest.mark.parametrize(
    "claims",
    [
        {"scope": "execute_tasks"},
        {"scope": "a execute_tasks b"},
        {"scope": None, "scp": ["execute_tasks"]},
        {"scope": "other", "scp": "execute_tasks"},
        {"scope": ["execute_tasks"]},
    ],
)
def test_scopes_are_read_from_every_usual_claim(claims: dict[str, Any]) -> None:
    assert "execute_tasks" in verifier().verify(MAKER.bearer(**claims)).scopes


@pytest.mark.parametrize(
    "claims",
    [
        {"scope": None},
        {"scope": ""},
        {"scope": "execute_tasks2"},
        {"scope": "EXECUTE_TASKS"},
        {"scope": "execute_tasks,other"},
        {"scope": {"execute_tasks": True}},
        {"scope": [["execute_tasks"]]},
    ],
)
def test_a_valid_token_without_the_scope_is_forbidden(claims: dict[str, Any]) -> None:
    principal = verifier().verify(MAKER.bearer(**claims))
    with pytest.raises(Forbidden, match="execute_tasks", check=coded("INSUFFICIENT_SCOPE")):
        require_scope(principal, "execute_tasks")


SECONDS = timedelta(seconds=1)


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://issuer.test/"},
        {"iss": None},
        {"iss": ["https://issuer.test"]},
        {"aud": "other"},
        {"aud": None},
        {"aud": ["other", "delegation2"]},
        {"exp": (NOW - 30 * SECONDS).timestamp()},
        {"exp": None},
        {"exp": "9999999999"},
        {"exp": True},
        {"exp": float("nan")},
        {"nbf": (NOW + 31 * SECONDS).timestamp()},
        {"nbf": "0"},
        {"nbf": 10**400},
        {"exp": -(10**400)},
        {"exp": {}},
        {"nbf": float("nan")},
        {"nbf": -1},
        {"nbf": -(10**400)},
        {"iat": "0"},
        {"iat": True},
        {"iat": -1},
        # beyond the year 9999
        {"exp": 10**400},
        {"exp": float("inf")},
        {"exp": 10**18},
        {"exp": 253_402_300_800},
        # without reading another claim instead
        {"client_id": ""},
        {"client_id": 7},
        {"client_id": "a\nb"},
        {"client_id": "x" * 257},
        {"client_id": None, "sub": None},
    ],
    ids=str,
)
def test_an_invalid_claim_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthorized):
        verifier().verify(MAKER.bearer(**claims))


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["other", "delegation"]},
        {"exp": (NOW - 29 * SECONDS).timestamp()},
        {"nbf": (NOW + 30 * SECONDS).timestamp()},
        {"nbf": 0},
        {"exp": 253_402_300_799},
        {"iat": (NOW + 3600 * SECONDS).timestamp()},
    ],
    ids=str,
)
def test_claims_are_accepted_within_the_leeway(claims: dict[str, Any]) -> None:
    assert verifier().verify(MAKER.bearer(**claims)).client_id == "polaris"


def test_without_a_configured_audience_none_is_required() -> None:
    """Polaris' token broker sets neither an audience nor a key id."""
    broker = TokenMaker(rsa_key(), kid=None)
    token = broker.bearer(aud=None, iss="https://issuer.test", client_id="root", scope="execute_tasks")
    assert verifier(audience=None).verify(token).client_id == "root"


def test_a_signature_of_another_key_is_refused() -> None:
    with pytest.raises(Unauthorized) as refused:
        verifier().verify(TokenMaker(rsa_key("other")).bearer())
    assert "signature was not made" in refused.value.reason


def test_a_changed_payload_is_refused() -> None:
    head, _, signature = MAKER.token().split(".")
    payload = base64.urlsafe_b64encode(b'{"iss":"https://issuer.test","scope":"execute_tasks"}').rstrip(b"=").decode()
    with pytest.raises(Unauthorized):
        verifier().verify(f"Bearer {head}.{payload}.{signature}")


@pytest.mark.parametrize("algorithm", ["none", "None", "", None, "HS256", "ES256", 5, ["RS256"]])
def test_the_algorithm_follows_from_the_key_not_from_the_token(algorithm: Any) -> None:
    token = unsigned(MAKER.claims, {"alg": algorithm, "typ": "JWT", "kid": "k1"})
    with pytest.raises(Unauthorized):
        verifier().verify(f"Bearer {token}")


def test_the_public_key_cannot_be_used_as_a_secret() -> None:
    """An HMAC with the public key, which an attacker knows, is refused (RFC 8725, Section 2.1)."""
    pem = public_pem(rsa_key())
    algorithm = jwt.get_algorithm_by_name("HS256")
    signing_input = unsigned(MAKER.claims, {"alg": "HS256", "typ": "JWT"}).rpartition(".")[0]
    signature = base64.urlsafe_b64encode(algorithm.sign(signing_input.encode(), pem.encode())).rstrip(b"=").decode()
    with pytest.raises(Unauthorized):
        verifier().verify(f"Bearer {signing_input}.{signature}")


def test_a_signature_of_a_short_rsa_key_is_refused() -> None:
    weak = rsa_key("weak", 1024)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = TokenMaker(weak).bearer()
    with pytest.raises(Unauthorized):
        verifier(StaticKeys((public_key(public_pem(weak)),))).verify(token)


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "bearer-token x", f"Bearer {'x' * 9000}", "Bearer é.é.é"],
)
def test_a_header_without_a_bearer_token_is_refused(header: str | None) -> None:
    with pytest.raises(Unauthorized):
        bearer_token(header)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_case_insensitive(scheme: str) -> None:
    assert bearer_token(f"{scheme} a.b.c") == "a.b.c"


@given(st.text(max_size=80) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_arbitrary_text_is_unauthorized(text: str) -> None:
    for token in (text, f"{text}.{text}.{text}", f"eyJhbGciOiJSUzI1NiJ9.{text}.{text}"):
        with pytest.raises(Unauthorized):
            verifier().verify(f"Bearer {token}")


@given(
    st.dictionaries(
        st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk"]),
        st.none() | st.text() | st.integers() | st.lists(st.text()),
    )
)
def test_no_header_makes_a_wrong_signature_valid(header: dict[str, Any]) -> None:
    with pytest.raises(Unauthorized):
        verifier().verify(f"Bearer {unsigned(MAKER.claims, header, b'signature')}")


@pytest.mark.parametrize("maker", [TokenMaker(rsa_key("other")), TokenMaker(ec_key(), "ES256")])
@pytest.mark.parametrize("claims", [{}, {"iss": "x"}, {"exp": 0}, {"scope": "s"}])
def test_a_refusal_does_not_quote_the_token(maker: TokenMaker, claims: dict[str, Any]) -> None:
    token = maker.token(**claims)
    with pytest.raises(Unauthorized) as refused:
        verifier().verify(f"Bearer {token}")
    assert str(refused.value) == "Unauthorized"
    shown = [repr(refused.value), refused.value.reason, *traceback.format_exception(refused.value)]
    assert not any(part in text for text in shown for part in token.split("."))


@pytest.mark.parametrize("text", ["", "nonsense", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"])
def test_an_invalid_public_key_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="public key in PEM"):
        public_key(text)


@pytest.mark.parametrize("audience", ["another-service", ["delegation"], [], ""])
def test_without_a_configured_audience_a_token_for_one_is_refused(audience: Any) -> None:
    with pytest.raises(Unauthorized):
        verifier(audience=None).verify(MAKER.bearer(aud=audience))


@pytest.mark.parametrize("kind", ["dpop+jwt", "logout+jwt", "JWE", "jwt2", 5, ["JWT"], {"a": 1}], ids=str)
def test_a_token_of_another_type_than_an_access_token_is_refused(kind: Any) -> None:
    with pytest.raises(Unauthorized):
        verifier().verify(MAKER.bearer(headers={"typ": kind}))


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", None])
def test_a_jwt_an_access_token_and_a_token_without_a_type_are_accepted(kind: str | None) -> None:
    """RFC 9068, Section 2.1; RFC 7515, Section 4.1.9: `typ` is optional."""
    assert verifier().verify(MAKER.bearer(headers={"typ": kind})).client_id == "polaris"


@given(st.text("abcilnestu:", min_size=1), st.text("abcilnestu:", min_size=1))
def test_no_client_has_the_name_of_a_subject_and_no_two_clients_share_one(first: str, second: str) -> None:
    assert client_text(first) != f"sub:{second}"
    assert (client_text(first) == client_text(second)) == (first == second)


def test_a_usual_client_id_is_kept_so_that_its_keys_stay_known() -> None:
    assert [client_text(name) for name in ("polaris", "a:b", "SUB:x")] == ["polaris", "a:b", "SUB:x"]


def test_a_token_is_verified_with_the_keys_of_the_issuer_that_it_names() -> None:
    """Two issuers are trusted while callers change to the next; neither can sign in the other's name."""
    following = TrustedIssuer("https://next.test", StaticKeys((public_key(public_pem(ec_key())),)), "delegation")
    both = replace(verifier(), issuers=(*verifier().issuers, following))
    of_next = TokenMaker(ec_key(), "ES256")
    assert both.verify(MAKER.bearer()).client_id == "polaris"
    assert both.verify(of_next.bearer(iss="https://next.test")).client_id == "polaris"
    for forged in (MAKER.bearer(iss="https://next.test"), of_next.bearer()):
        with pytest.raises(Unauthorized) as refused:
            both.verify(forged)
        assert "key id and algorithm" in refused.value.reason


def test_the_keys_of_an_unknown_issuer_are_not_fetched() -> None:
    class Untouched:
        def keys(self, kid: str | None) -> Any:
            raise AssertionError("keys were fetched for a token of another issuer")

    with pytest.raises(Unauthorized) as refused:
        verifier(Untouched()).verify(MAKER.bearer(iss="https://elsewhere.test"))
    assert "issuer is not a configured one" in refused.value.reason


def test_without_pinned_clients_any_client_is_admitted() -> None:
    principal = Principal("polaris", "s", frozenset())
    require_client(principal, ())
    require_client(principal, ("next", "polaris"))
    with pytest.raises(Forbidden, check=coded("CLIENT_REFUSED")):
        require_client(principal, ("Polaris",))


def test_a_bound_token_is_admitted_with_its_certificate_alone() -> None:
    principal = verifier().verify(MAKER.bearer(cnf={"x5t#S256": "abc"}))
    for binding in TokenBinding:
        require_binding(principal, "abc", binding)
        with pytest.raises(Unauthorized):
            require_binding(principal, "abd", binding)


def test_a_token_that_is_not_bound_is_admitted_unless_binding_is_required() -> None:
    principal = verifier().verify(MAKER.bearer())
    require_binding(principal, "abc", TokenBinding.OPTIONAL)
    with pytest.raises(Unauthorized) as refused:
        require_binding(principal, "abc", TokenBinding.REQUIRED)
    assert "delegation:token-binding" in refused.value.reason


@pytest.mark.parametrize(
    "cnf",
    [{}, "abc", 7, [], {"jkt": "abc"}, {"x5t#S256": ""}, {"x5t#S256": 7}, {"x5t#S256": "abc", "jkt": "abc"}, False],
    ids=repr,
)
def test_a_token_bound_to_something_else_is_refused(cnf: Any) -> None:
    with pytest.raises(Unauthorized) as refused:
        verifier().verify(MAKER.bearer(cnf=cnf))
    assert "RFC 8705" in refused.value.reason
