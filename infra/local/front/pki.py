"""A private CA for mutual TLS on one machine (Delegation Service proposal, Transport-Level Authentication)."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from infra.local.processes.programs import LOOPBACK

ORGANIZATION = "Polaris Delegation Service local stack"
SERVER_NAMES = ("localhost", LOOPBACK)
_LIFETIME = timedelta(days=365)
# A machine whose clock is slow must accept a new certificate.
_BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """PEM files of a certificate and its private key; only the owner can read the key file."""

    cert: Path
    key: Path


class CertificateAuthority:
    """Issues certificates into `directory`, which also has the authority's `ca.pem` and `ca.key`."""

    def __init__(self, files: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.files = files
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, directory: Path, *, name: str = "Local CA", now: datetime | None = None) -> Self:
        """Create an authority; replace the files of a former one in `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        key = _new_key()
        subject = _subject(name)
        builder = _builder(subject, subject, key, now or datetime.now(UTC))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(authority=True), critical=True)
        certificate = builder.sign(key, hashes.SHA256())
        files = KeyPair(directory / "ca.pem", directory / "ca.key")
        _write(files, certificate, key)
        return cls(files, certificate, key)

    @property
    def directory(self) -> Path:
        return self.files.cert.parent

    @property
    def subject(self) -> str:
        """The authority's distinguished name (RFC 4514), the issuer of its certificates."""
        return self._certificate.subject.rfc4514_string()

    def issue_server(
        self, *, name: str = "server", hosts: Sequence[str] = SERVER_NAMES, now: datetime | None = None
    ) -> KeyPair:
        """Issue a server certificate for `hosts` (DNS names, IP addresses) as `{name}.pem` and `{name}.key`."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._issue(name, hosts[0], ExtendedKeyUsageOID.SERVER_AUTH, names, now)

    def issue_client(self, common_name: str, *, name: str = "client", now: datetime | None = None) -> KeyPair:
        """Issue a client certificate for the identity `common_name` as `{name}.pem` and `{name}.key`."""
        return self._issue(name, common_name, ExtendedKeyUsageOID.CLIENT_AUTH, None, now)

    def _issue(
        self,
        name: str,
        common_name: str,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
        now: datetime | None,
    ) -> KeyPair:
        key = _new_key()
        builder = _builder(_subject(common_name), self._certificate.subject, key, now or datetime.now(UTC))
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority_key, critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        files = KeyPair(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        _write(files, builder.sign(self._key, hashes.SHA256()), key)
        return files


def subject_of(certificate: Path) -> str:
    """Return the distinguished name (RFC 4514) in a PEM certificate."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).subject.rfc4514_string()


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _subject(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(files: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    files.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    # Created with its mode, so that other users can never read the key.
    files.key.unlink(missing_ok=True)
    files.key.touch(mode=0o600, exist_ok=False)
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
