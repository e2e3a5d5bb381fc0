"""A client outlives the rotation of its certificate, at a real server that admits one of them at a time."""

import asyncio
import http.server
import shutil
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from delegation.client.client import TIMEOUT
from delegation.client.errors import ClientMisconfigured
from delegation.client.settings import ClientTls, asyncio_client, blocking_client
from infra.local.identities import CertificateAuthority, KeyPair


class Named(http.server.BaseHTTPRequestHandler):
    """Answers with the subject of the client's certificate, and closes the connection."""

    def do_GET(self) -> None:
        certificate = self.connection.getpeercert()  # type: ignore[attr-defined]
        names = {key: value for ((key, value),) in certificate["subject"]}
        body = names["commonName"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the standard library
        pass


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    folder = tmp_path / "ca"
    folder.mkdir()
    return CertificateAuthority.create(folder)


@pytest.fixture
def address(authority: CertificateAuthority) -> Iterator[str]:
    pair = authority.issue_server()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.files.cert))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pair.cert, pair.key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Named) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Files:
    """The files of a client, and what replaces them."""

    def __init__(self, authority: CertificateAuthority, folder: Path) -> None:
        self.authority = authority
        self.used = KeyPair.of(folder, "used")
        self.ca = authority.files.cert
        self.put("first")

    def put(self, name: str) -> None:
        pair = self.authority.issue_client(name, name=name)
        shutil.copyfile(pair.cert, self.used.cert)
        shutil.copyfile(pair.key, self.used.key)

    def tls(self) -> ClientTls:
        return ClientTls(self.ca, self.used.cert, self.used.key)


@pytest.fixture
def files(authority: CertificateAuthority, tmp_path: Path) -> Files:
    return Files(authority, tmp_path)


def test_a_renewed_certificate_is_used_from_the_next_connection_on(files: Files, address: str) -> None:
    with blocking_client(files.tls(), TIMEOUT) as client:
        assert client.get(address).text == "first"
        files.put("second")
        assert client.get(address).text == "second"


def test_asyncio_clients_use_it_too(files: Files, address: str) -> None:
    async def asked() -> list[str]:
        async with asyncio_client(files.tls(), TIMEOUT) as client:
            found = [(await client.get(address)).text]
            files.put("second")
            return [*found, (await client.get(address)).text]

    assert asyncio.run(asked()) == ["first", "second"]


def test_half_a_rotation_leaves_the_former_pair_in_use(files: Files, address: str) -> None:
    with blocking_client(files.tls(), TIMEOUT) as client:
        second = files.authority.issue_client("second", name="second")
        shutil.copyfile(second.cert, files.used.cert)
        assert client.get(address).text == "first"
        files.used.key.unlink()
        assert client.get(address).text == "first"
        files.used.cert.write_text("-----BEGIN CERT")
        assert client.get(address).text == "first"
        shutil.copyfile(second.cert, files.used.cert)
        shutil.copyfile(second.key, files.used.key)
        assert client.get(address).text == "second"


def test_the_authority_of_a_renewed_server_certificate_is_trusted(files: Files, address: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    trusted = tmp_path / "trusted.pem"
    shutil.copyfile(CertificateAuthority.create(other, name="Former CA").files.cert, trusted)
    with blocking_client(ClientTls(trusted, files.used.cert, files.used.key), TIMEOUT) as client:
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            client.get(address)
        shutil.copyfile(files.ca, trusted)
        assert client.get(address).text == "first"


def test_certificates_that_cannot_be_used_are_named_at_once(files: Files) -> None:
    files.used.cert.write_text("no certificate")
    with pytest.raises(ClientMisconfigured, match=r"used\.pem"):
        files.tls()


def test_the_file_that_fails_is_named_alone_and_a_file_that_is_not_set_is_not_named(files: Files) -> None:
    with pytest.raises(ClientMisconfigured) as caught:
        ClientTls(None, files.used.cert.with_name("absent.pem"), files.used.key)
    assert "client_cert" in str(caught.value)
    assert "absent.pem" in str(caught.value)
    assert "None" not in str(caught.value)
    assert "ca_cert" not in str(caught.value)
    files.ca.with_name("other.pem").write_text("no certificate")
    with pytest.raises(ClientMisconfigured, match=r"ca_cert .*other\.pem") as caught:
        ClientTls(files.ca.with_name("other.pem"), files.used.cert, files.used.key)
    assert "client_" not in str(caught.value)
