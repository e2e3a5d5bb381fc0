"""A certificate authority and a token issuer for tests, with real keys and signatures."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import quote

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from delegation.edge.trust.authorizer import LEAF_HEADER, SERIAL_HEADER

NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
SUBJECT = "CN=polaris,OU=Catalog,O=Example"
ISSUER = "CN=Example Private CA,O=Example"
SERIAL = 0x0A1B2C
DAY = timedelta(days=1)


@cache
def authority_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(
    subject: x509.Name | str = SUBJECT,
    issuer: x509.Name | str = ISSUER,
    *,
    serial: int = SERIAL,
    begins: datetime = NOW - DAY,
    ends: datetime = NOW + DAY,
    listed_at: str | None = None,
    signer: ec.EllipticCurvePrivateKey | None = None,
) -> x509.Certificate:
    """Return a client certificate signed by the authority, or by `signer` in the name of `issuer`.

    `listed_at` is where it says that revocation is listed.
    """
    builder = (
        x509.CertificateBuilder()
        .subject_name(name_of(subject))
        .issuer_name(name_of(issuer))
        .serial_number(serial)
        .public_key(authority_key().public_key())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
    if listed_at is not None:
        point = x509.DistributionPoint([x509.UniformResourceIdentifier(listed_at)], None, None, None)
        builder = builder.add_extension(x509.CRLDistributionPoints([point]), critical=False)
    return builder.sign(signer or authority_key(), hashes.SHA256())


def authority(
    subject: str = ISSUER,
    *,
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | None = None,
    signs_lists: bool | None = True,
    issuer: str | None = None,
    signer: ec.EllipticCurvePrivateKey | None = None,
    serial: int = 1,
) -> x509.Certificate:
    """Return the authority's certificate; with `signs_lists` None it does not say what its key is for.

    It is a root, or with an `issuer` an intermediate, which `signer` signed in that name.
    """
    key = key or authority_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(name_of(subject))
        .issuer_name(name_of(issuer or subject))
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .public_key(key.public_key())
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
    )
    if signs_lists is not None:
        names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        unused: dict[str, bool] = dict.fromkeys((*names, "encipher_only", "decipher_only"), False)
        usage = x509.KeyUsage(key_cert_sign=True, crl_sign=signs_lists, **unused)
        builder = builder.add_extension(usage, critical=True)
    with_key = signer or key
    return builder.sign(with_key, None if isinstance(with_key, ed25519.Ed25519PrivateKey) else hashes.SHA256())


def revocation_list(
    revoked: Sequence[int] = (),
    *,
    issuer: str = ISSUER,
    this_update: datetime = NOW - 2 * DAY,
    next_update: datetime = NOW + DAY,
    signer: ec.EllipticCurvePrivateKey | None = None,
    extensions: Sequence[x509.ExtensionType] = (),
) -> x509.CertificateRevocationList:
    """Return a revocation list of the authority, or one that `signer` signed in its name; extensions are critical."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(name_of(issuer))
        .last_update(this_update)
        .next_update(next_update)
    )
    for serial in revoked:
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW - DAY).build()
        builder = builder.add_revoked_certificate(one)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(signer or authority_key(), hashes.SHA256())


def pem(of: x509.Certificate | x509.CertificateRevocationList) -> str:
    return of.public_bytes(Encoding.PEM).decode()


ENDPOINT = "vpce-0a1b2c3d4e5f"


def alb_headers(of: x509.Certificate) -> dict[str, str]:
    """Return the headers with which an ALB in the mode "verify" passes a certificate on, except its names."""
    return {LEAF_HEADER: alb_leaf(of), SERIAL_HEADER: f"{of.serial_number:X}"}


def alb_leaf(of: x509.Certificate) -> str:
    """Return a certificate as in an ALB's X-Amzn-Mtls-Clientcert-Leaf: URL-encoded PEM, except `+=/`."""
    return quote(pem(of), safe="+=/")


def name_of(name: x509.Name | str) -> x509.Name:
    return name if isinstance(name, x509.Name) else x509.Name.from_rfc4514_string(name)


@cache
def rsa_key(name: str = "rsa", bits: int = 2048) -> rsa.RSAPrivateKey:
    del name  # only the cache key: another name is another key
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_pem(key: Any) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def jwk(key: Any, kid: str | None = "k1", **members: Any) -> dict[str, Any]:
    """Return the public key of a private key as a JWK."""
    reader = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    to_jwk = next(algorithm.to_jwk for kind, algorithm in reader.items() if isinstance(key, kind))
    public = json.loads(to_jwk(key.public_key()))
    public.pop("key_ops", None)
    return {**public, **({} if kid is None else {"kid": kid}), "use": "sig", **members}


@dataclass
class TokenMaker:
    """Signs tokens; keyword arguments replace a claim or, with None, remove it."""

    key: Any
    algorithm: str = "RS256"
    kid: str | None = "k1"
    claims: dict[str, Any] = field(
        default_factory=lambda: {
            "iss": "https://issuer.test",
            "aud": "delegation",
            "sub": "service-account-polaris",
            "client_id": "polaris",
            "scope": "openid execute_tasks",
            "iat": NOW.timestamp(),
            "exp": (NOW + timedelta(minutes=5)).timestamp(),
        }
    )

    def token(self, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        merged = {name: value for name, value in {**self.claims, **claims}.items() if value is not None}
        named = {} if self.kid is None else {"kid": self.kid}
        # PyJWS, not PyJWT, because PyJWT refuses to sign the invalid claims of some tests.
        payload = json.dumps(merged).encode()
        return jwt.PyJWS().encode(payload, self.key, self.algorithm, {"typ": "JWT", **named, **(headers or {})})

    def bearer(self, **options: Any) -> str:
        return f"Bearer {self.token(**options)}"


def unsigned(payload: dict[str, Any], header: dict[str, Any], signature: bytes = b"") -> str:
    """Return a token with the given signature, without signing."""
    parts = [json.dumps(header).encode(), json.dumps(payload).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
