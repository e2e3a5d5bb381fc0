"""Attempts by what is wrong with them: how a case of the table is written."""

import base64
import hmac
import json
import ssl
import warnings
from collections.abc import Mapping
from typing import Any, Final

from cryptography import x509

from tests.unit.edge.trust.pki import TokenMaker, public_pem, rsa_key, unsigned
from tests.unit.edge.trust.refusals.bench import MAKER, Attempt, Issued

Case = tuple[int | None, str, Attempt]
"""The expected status (None: no answer), a part of the reason, and the attempt."""
CLAIMS: Final = MAKER.claims
OWN_KEY: Final = TokenMaker(rsa_key("of an attacker"), claims=CLAIMS)
HEADER: Final = {"typ": "JWT", "alg": "RS256"}
SIGNED: Final = MAKER.token().split(".")


def issued(status: int | None, why: str, **differences: Any) -> Case:
    return status, why, Attempt(issued=Issued(**differences))


def claims(why: str, status: int = 401, settings: Mapping[str, str] | None = None, **differences: Any) -> Case:
    return status, why, Attempt(token=MAKER.bearer(**differences), settings=settings or {})


def token(why: str, text: str | None) -> Case:
    return 401, why, Attempt(token=text)


def listed(status: int, why: str, *revoked: int, settings: Mapping[str, str] | None = None, **options: Any) -> Case:
    return status, why, Attempt(lists=lambda pki: pki.revocation_list(*revoked, **options), settings=settings or {})


def realm(why: str, value: Any, status: int = 400) -> Case:
    return status, why, Attempt(realm=value)


def header(status: int, why: str, *lines: str, **differences: Any) -> Case:
    return status, why, Attempt(headers=lines, **differences)


def path(status: int, why: str, target: str, method: str = "GET") -> Case:
    return status, why, Attempt(token=None, line=f"{method} {target} HTTP/1.1", body=b"")


def framing(why: str, raw: bytes) -> Case:
    return 400, why, Attempt(raw=raw)


def only(version: ssl.TLSVersion) -> Any:
    def restrict(context: ssl.SSLContext) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version

    return restrict


def offering(ciphers: str) -> Any:
    def restrict(context: ssl.SSLContext) -> None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(f"{ciphers}:@SECLEVEL=0")

    return restrict


def of_names(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, text, _validate=False) for kind, text in parts])


def changed_payload() -> str:
    payload = base64.urlsafe_b64encode(json.dumps({**CLAIMS, "client_id": "other"}).encode()).rstrip(b"=").decode()
    return f"Bearer {SIGNED[0]}.{payload}.{SIGNED[2]}"


def with_public_key_as_secret() -> str:
    head = {"typ": "JWT", "alg": "HS256"}
    signing = unsigned(CLAIMS, head).rpartition(".")[0]
    secret = public_pem(rsa_key()).encode()
    return f"Bearer {unsigned(CLAIMS, head, hmac.digest(secret, signing.encode(), 'sha256'))}"
