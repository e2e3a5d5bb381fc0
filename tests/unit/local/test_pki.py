import contextlib
import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from infra.local.identities import CertificateAuthority, KeyPair, subject_of


def handshake(server: KeyPair, servers_ca: Path, clients_ca: Path, client: KeyPair | None, name: str) -> str | None:
    """Return the client's subject that the server got, None if it refused; raise ssl.SSLError if the client refuses."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.load_cert_chain(server.cert, server.key)
    accepting.load_verify_locations(clients_ca)
    accepting.verify_mode = ssl.CERT_REQUIRED
    asking = ssl.create_default_context(cafile=str(servers_ca))
    if client is not None:
        asking.load_cert_chain(client.cert, client.key)
    here, there = socket.socketpair()
    seen: list[str] = []

    def accept() -> None:
        with (
            contextlib.closing(there),
            contextlib.suppress(OSError),
            accepting.wrap_socket(there, server_side=True) as secure,
        ):
            der = secure.getpeercert(binary_form=True) or b""
            seen.append(x509.load_der_x509_certificate(der).subject.rfc4514_string())
            secure.sendall(b"!")

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        with asking.wrap_socket(here, server_hostname=name) as secure, contextlib.suppress(OSError):
            # TLS 1.3: the client learns only here that its certificate was refused.
            secure.recv(1)
    finally:
        here.close()
        thread.join()
    return seen[0] if seen else None


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("pki"))


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_client_and_server_accept_certificates_of_their_authority(authority: CertificateAuthority, name: str) -> None:
    server, client = authority.issue_server(), authority.issue_client("polaris")
    subject = handshake(server, authority.files.cert, authority.files.cert, client, name)
    assert subject == subject_of(client.cert)
    assert subject is not None
    assert subject.startswith("CN=polaris,")


def test_a_client_without_a_certificate_or_with_one_of_another_authority_is_refused(authority, tmp_path):
    other = CertificateAuthority.create(tmp_path, name="Another CA")
    server = authority.issue_server()
    for client in (None, other.issue_client("polaris")):
        assert handshake(server, authority.files.cert, authority.files.cert, client, "localhost") is None


def test_a_client_certificate_is_no_server_certificate(authority: CertificateAuthority) -> None:
    client = authority.issue_client("polaris")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(client, authority.files.cert, authority.files.cert, client, "localhost")


def test_a_server_of_another_authority_or_name_is_refused(authority: CertificateAuthority, tmp_path: Path) -> None:
    server, client = (
        authority.issue_server(hosts=["elsewhere.test"], name="elsewhere"),
        authority.issue_client("polaris"),
    )
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, authority.files.cert, authority.files.cert, client, "localhost")
    other = CertificateAuthority.create(tmp_path, name="Another CA")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority.issue_server(), other.files.cert, authority.files.cert, client, "localhost")


def test_private_keys_are_readable_by_their_owner_only(authority: CertificateAuthority) -> None:
    for files in (authority.files, authority.issue_server(), authority.issue_client("polaris")):
        assert files.key.stat().st_mode & 0o777 == 0o600
        assert b"PRIVATE KEY" in files.key.read_bytes()
        assert b"PRIVATE" not in files.cert.read_bytes()


def test_a_certificate_is_valid_now_and_names_its_issuer(authority: CertificateAuthority) -> None:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    files = authority.issue_client("polaris", name="dated", now=now)
    certificate = x509.load_pem_x509_certificate(files.cert.read_bytes())
    assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc
    assert certificate.issuer.rfc4514_string() == authority.subject == subject_of(authority.files.cert)
