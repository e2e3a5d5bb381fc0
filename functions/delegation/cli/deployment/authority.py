"""A private certificate authority in a folder, with the certificates that it issued."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from delegation.cli.deployment.files import write_public, write_secret
from delegation.cli.errors import CommandError


def certificate_unreadable(path: Path, reason: str) -> CommandError:
    return CommandError(
        f"{path} cannot be used: {reason}",
        "Restore the file, or make a new authority in another folder.",
        code="CERTIFICATE_UNREADABLE",
    )


CA: Final = "ca"
REVOCATION_LIST: Final = "crl.pem"
FORMER: Final = "former"
# A machine whose clock is slow must accept a new certificate.
_BACKDATED: Final = timedelta(minutes=5)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate of the folder: the name of its files, and whether the list has revoked it."""

    name: str
    certificate: x509.Certificate
    revoked: bool = False

    @property
    def subject(self) -> str:
        """The distinguished name in the form of `delegation:client-subject` (RFC 4514)."""
        return self.certificate.subject.rfc4514_string()

    @property
    def serial(self) -> str:
        """The serial number in the form of `delegation:client-serials`."""
        return f"{self.certificate.serial_number:x}"

    @property
    def use(self) -> str:
        try:
            usage = self.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except x509.ExtensionNotFound:
            return "CA"
        return "server" if ExtendedKeyUsageOID.SERVER_AUTH in usage else "client"


class Authority:
    """The authority of a folder, which has `ca.pem` and `ca.key`, `NAME.pem` and `NAME.key`, and `crl.pem`."""

    def __init__(self, folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.folder = folder
        self.certificate = certificate
        self._key = key

    @classmethod
    def create(cls, folder: Path, *, name: str, organization: str, lifetime: timedelta, now: datetime) -> "Authority":
        """Create an authority. Raises CommandError (AUTHORITY_EXISTS) if the folder has one."""
        if exists(folder):
            raise CommandError(
                f"{folder} already has a certificate authority, which was not changed",
                "Name another folder with --dir.",
                code="AUTHORITY_EXISTS",
            )
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, organization)
        builder = _builder(subject, subject, key.public_key(), now, lifetime)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        certificate = builder.add_extension(_key_usage(authority=True), critical=True).sign(key, hashes.SHA256())
        write_secret(folder / f"{CA}.key", _pem_of(key))
        write_public(folder / f"{CA}.pem", certificate.public_bytes(serialization.Encoding.PEM))
        return cls(folder, certificate, key)

    @classmethod
    def open(cls, folder: Path) -> "Authority":
        if not exists(folder):
            raise CommandError(
                f"{folder} has no certificate authority",
                "Make an authority with `delegation certs init`.",
                code="AUTHORITY_MISSING",
            )
        certificate = _certificate(folder / f"{CA}.pem")
        try:
            key = serialization.load_pem_private_key((folder / f"{CA}.key").read_bytes(), None)
        except (OSError, ValueError, TypeError):
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise certificate_unreadable(folder / f"{CA}.key", "it is not the key of ca.pem, or you may not read it")
        return cls(folder, certificate, key)

    def has(self, name: str) -> bool:
        return (self.folder / f"{name}.pem").exists()

    def issue_client(
        self, name: str, *, organization: str, lifetime: timedelta, now: datetime, common_name: str | None = None
    ) -> Issued:
        """Issue the certificate of a caller or of an operator; `common_name` is the name by default."""
        subject = _subject(common_name or name, organization)
        return self._issue(name, subject, ExtendedKeyUsageOID.CLIENT_AUTH, None, lifetime=lifetime, now=now)

    def issue_server(
        self, name: str, hosts: Sequence[str], *, organization: str, lifetime: timedelta, now: datetime
    ) -> Issued:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._issue(
            name, _subject(hosts[0], organization), ExtendedKeyUsageOID.SERVER_AUTH, names, lifetime=lifetime, now=now
        )

    def rotate(self, name: str, *, lifetime: timedelta, now: datetime) -> Issued:
        """Issue a successor with a new key and the same names; the former pair stays beside it as `NAME.former`."""
        former = self.find(name)
        extensions = former.certificate.extensions
        usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        try:
            names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            names = None
        pair = (self.folder / f"{name}.pem", self.folder / f"{name}.key")
        write_secret(self.folder / f"{name}.{FORMER}.key", pair[1].read_bytes(), replace=True)
        write_public(self.folder / f"{name}.{FORMER}.pem", pair[0].read_bytes())
        return self._issue(name, former.certificate.subject, next(iter(usage)), names, lifetime=lifetime, now=now)

    def find(self, name: str) -> Issued:
        """Return a certificate by the name of its files or by its serial number. Raises CommandError."""
        unreadable: dict[str, CommandError] = {}
        for issued in self.issued(unreadable):
            if name in {issued.name, issued.serial} and issued.name != CA:
                return issued
        if name in unreadable:
            raise unreadable[name]
        also = f"; {', '.join(sorted(unreadable))} cannot be read" if unreadable else ""
        raise CommandError(
            f"{self.folder} has no certificate {name}{also}",
            "`delegation certs show` lists names and serial numbers.",
            code="CERTIFICATE_UNKNOWN",
        )

    def issued(self, unreadable: dict[str, CommandError]) -> list[Issued]:
        """Return the certificates of the folder, the authority's first; adds the errors of unreadable files."""
        revoked = {entry.serial_number for entry in self.revoked()}
        names = sorted(path.stem for path in self.folder.glob("*.pem") if path.name != REVOCATION_LIST)
        certificates = []
        for name in names:
            try:
                certificate = _certificate(self.folder / f"{name}.pem")
            except CommandError as error:
                unreadable[name] = error
                continue
            certificates.append(Issued(name, certificate, certificate.serial_number in revoked))
        return sorted(certificates, key=lambda issued: issued.name != CA)

    def revoked(self) -> list[x509.RevokedCertificate]:
        """Return the entries of the revocation list, none without a list. Raises CommandError."""
        path = self.folder / REVOCATION_LIST
        if not path.exists():
            return []
        try:
            return list(x509.load_pem_x509_crl(path.read_bytes()))
        except ValueError:
            raise certificate_unreadable(path, "it is not a revocation list in PEM") from None

    def revoke(self, issued: Issued | None, *, lifetime: timedelta, now: datetime) -> Path:
        """Sign a new revocation list, with one more certificate if given; it is valid for `lifetime`."""
        entries = self.revoked()
        if issued is not None and all(entry.serial_number != issued.certificate.serial_number for entry in entries):
            serial = issued.certificate.serial_number
            entries.append(
                x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - _BACKDATED).build()
            )
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject)
        builder = builder.last_update(now - _BACKDATED).next_update(now + lifetime)
        builder = builder.add_extension(x509.CRLNumber(int(now.timestamp())), critical=False)
        builder = builder.add_extension(_authority_key(self._key), critical=False)
        for entry in entries:
            builder = builder.add_revoked_certificate(entry)
        path = self.folder / REVOCATION_LIST
        write_public(path, builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
        *,
        lifetime: timedelta,
        now: datetime,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self.certificate.subject, key.public_key(), now, lifetime)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(_authority_key(self._key), critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        write_secret(self.folder / f"{name}.key", _pem_of(key), replace=True)
        write_public(self.folder / f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))
        return Issued(name, certificate)


def exists(folder: Path) -> bool:
    return (folder / f"{CA}.pem").exists() or (folder / f"{CA}.key").exists()


def is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text)) and text != CA


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        raise certificate_unreadable(path, "it is not a certificate in PEM, or you may not read it") from None


def _subject(common_name: str, organization: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
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


def _authority_key(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
