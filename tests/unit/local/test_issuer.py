from collections.abc import Iterator
from typing import Any

import httpx
import jwt
import pytest
from pydantic import SecretStr

from infra.local.identities import OAuth2Client, TokenIssuer

FORM = {"grant_type": "client_credentials", "client_id": "polaris", "client_secret": "pssst", "scope": "execute_tasks"}


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    issuer = TokenIssuer([OAuth2Client("polaris", SecretStr("pssst"))]).start()
    yield issuer
    issuer.stop()


def decode(issuer: TokenIssuer, token: str, **options: Any) -> dict[str, Any]:
    keys = {key["kid"]: jwt.PyJWK(key) for key in httpx.get(issuer.jwks_url).json()["keys"]}
    key = keys[jwt.get_unverified_header(token)["kid"]]
    claims: dict[str, Any] = jwt.decode(token, key, algorithms=["RS256"], issuer=issuer.issuer, **options)
    return claims


def test_a_token_verifies_with_the_published_key_and_has_the_claims(issuer: TokenIssuer) -> None:
    answer = httpx.post(issuer.token_url, data=FORM)
    body = answer.json()
    assert (answer.headers["Cache-Control"], body["token_type"], body["expires_in"]) == ("no-store", "Bearer", 3600)
    claims = decode(issuer, body["access_token"])
    assert claims["exp"] - claims["iat"] == 3600
    about = {"iss": issuer.issuer, "sub": "polaris", "client_id": "polaris", "scope": "execute_tasks"}
    assert claims.items() >= about.items()
    again = decode(issuer, httpx.post(issuer.token_url, data=FORM).json()["access_token"])
    assert again["jti"] != claims["jti"]


def test_the_client_can_use_basic_authentication(issuer: TokenIssuer) -> None:
    answer = httpx.post(issuer.token_url, data={"grant_type": "client_credentials"}, auth=("polaris", "pssst"))
    assert decode(issuer, answer.json()["access_token"])["scope"] == "execute_tasks"


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"client_secret": "no"}, 401, "invalid_client"),
        ({"client_id": "nobody"}, 401, "invalid_client"),
        ({"scope": "execute_tasks admin"}, 400, "invalid_scope"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
    ],
)
def test_an_invalid_token_request_is_refused(issuer, change, status, error):
    answer = httpx.post(issuer.token_url, data=FORM | change)
    assert (answer.status_code, answer.json()) == (status, {"error": error})


def test_another_path_is_not_found(issuer: TokenIssuer) -> None:
    assert httpx.get(f"{issuer.issuer}/elsewhere").status_code == 404


def test_the_jwks_contains_only_the_public_key(issuer: TokenIssuer) -> None:
    [key] = issuer.jwks()["keys"]
    assert set(key) == {"kty", "n", "e", "use", "alg", "kid"}


def test_expired_tokens_and_tokens_with_an_audience_can_be_issued(issuer: TokenIssuer) -> None:
    with pytest.raises(jwt.ExpiredSignatureError):
        decode(issuer, issuer.issue("polaris", "execute_tasks", now=0))
    other = TokenIssuer([], audience="delegation")
    try:
        token = other.issue("polaris", "execute_tasks")
        assert jwt.decode(token, options={"verify_signature": False})["aud"] == "delegation"
    finally:
        other.stop()
