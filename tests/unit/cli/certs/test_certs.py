"""`delegation certs`: certificates that TLS and the authorizer admit, keys of their owner alone, a signed list."""

import json
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from delegation.edge.errors import CertificateRefused
from delegation.edge.trust.authorizer import CertificatePin, parse_name
from delegation.edge.trust.revocation import RevocationCheck, StaticLists, verified_list
from infra.local.identities import KeyPair, subject_of
from tests.unit.cli.conftest import lines
from tests.unit.local.test_pki import handshake


@pytest.fixture
def pki(run, tmp_path):
    folder = tmp_path / "pki"
    hosts = ("--server", "localhost", "--server", "127.0.0.1")
    result = run("certs", "init", "--dir", str(folder), *hosts, "--operator", "alice", "--json")
    assert result.exit_code == 0
    return folder


def shown(run, folder):
    (document,) = lines(run("certs", "show", "--dir", str(folder), "--json").stdout)
    return {each["name"]: each for each in document["certificates"]}


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def shake_hands(folder, name="polaris", host="localhost"):
    """Return the subject of the client that the server admits."""
    authority = folder / "ca.pem"
    return handshake(KeyPair.of(folder, "server"), authority, authority, KeyPair.of(folder, name), host)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_certificates_work_for_mutual_tls(pki, host):
    for name in ("polaris", "alice"):
        assert shake_hands(pki, name, host) == subject_of(pki / f"{name}.pem")


def test_only_the_owner_can_read_a_key(pki):
    keys = list(pki.glob("*.key"))
    assert {key.stem for key in keys} == {"ca", "server", "polaris", "alice"}
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_init_again_keeps_what_exists_and_adds_what_is_missing(run, pki):
    before = {path.name: path.read_bytes() for path in pki.iterdir()}
    assert run("certs", "init", "--dir", str(pki), "--operator", "bob").exit_code == 0
    after = {path.name: path.read_bytes() for path in pki.iterdir()}
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"bob.pem", "bob.key"}


def test_show_has_the_names_for_the_settings(run, pki):
    found = shown(run, pki)
    assert [each["use"] for each in found.values()] == ["CA", "client", "client", "server"]
    parse_name(found["alice"]["subject"])
    assert found["alice"]["issuer"] == found["ca"]["subject"]
    text = run("certs", "init", "--dir", str(pki), "--operator", "alice").stdout
    assert f"delegation:operator-subjects to {found['alice']['subject']}" in text.replace("\n", " ")


def test_a_rotated_certificate_has_the_same_name_and_another_key(run, pki):
    before = certificate(pki / "alice.pem")
    (document,) = lines(run("certs", "rotate", "alice", "--dir", str(pki), "--days", "30", "--json").stdout)
    after = certificate(pki / "alice.pem")
    assert (after.subject, after.issuer) == (before.subject, before.issuer)
    assert after.public_key() != before.public_key()
    assert certificate(pki / "alice.former.pem") == before
    assert document["former_serial"] == f"{before.serial_number:x}"
    assert after.not_valid_after_utc - after.not_valid_before_utc == timedelta(days=30, minutes=5)
    assert stat.S_IMODE((pki / "alice.former.key").stat().st_mode) == 0o600
    assert shake_hands(pki, "alice") == shake_hands(pki, "alice.former") == subject_of(pki / "alice.pem")


def test_a_rotated_server_keeps_its_host_names(run, pki):
    assert run("certs", "rotate", "server", "--dir", str(pki)).exit_code == 0
    assert shake_hands(pki, host="127.0.0.1") == subject_of(pki / "polaris.pem")


def verified(pki):
    return verified_list((pki / "crl.pem").read_bytes(), [certificate(pki / "ca.pem")])


def pin(pki):
    alice = certificate(pki / "alice.pem")
    check = RevocationCheck(StaticLists((verified(pki),)))
    return CertificatePin(alice.subject, alice.issuer, revocation=check)


def test_the_authorizer_refuses_a_revoked_certificate_and_admits_its_successor(run, pki):
    former = certificate(pki / "alice.pem")
    assert run("certs", "rotate", "alice", "--dir", str(pki)).exit_code == 0
    assert run("certs", "revoke", f"{former.serial_number:x}", "--dir", str(pki)).exit_code == 0
    admitted, now = pin(pki), datetime.now(UTC)
    admitted.check(certificate(pki / "alice.pem"), now)
    with pytest.raises(CertificateRefused, match="revoked"):
        admitted.check(former, now)
    with pytest.raises(CertificateRefused, match="out of date"):
        admitted.check(certificate(pki / "alice.pem"), now + timedelta(days=31))
    assert shown(run, pki)["alice.former"]["state"] == "revoked"


def test_a_list_is_signed_and_keeps_its_entries_when_it_is_renewed(run, pki):
    run("certs", "revoke", "alice", "--dir", str(pki))
    run("certs", "revoke", "alice", "--dir", str(pki))
    (document,) = lines(run("certs", "revoke", "--renew", "--dir", str(pki), "--list-days", "7", "--json").stdout)
    assert document["revoked"] == [shown(run, pki)["alice"]["serial"]]
    listed = verified(pki)  # which checks the signature
    assert listed.next_update - listed.this_update == timedelta(days=7, minutes=5)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("show", "--dir", "nowhere"), "AUTHORITY_MISSING"),
        (("rotate", "nobody", "--dir", "pki"), "CERTIFICATE_UNKNOWN"),
        (("revoke", "nobody", "--dir", "pki"), "CERTIFICATE_UNKNOWN"),
        (("rotate", "ca", "--dir", "pki"), "AUTHORITY_STAYS"),
        (("revoke", "ca", "--dir", "pki"), "AUTHORITY_STAYS"),
        (("revoke", "--dir", "pki"), "MISUSE"),
        (("init", "--client", "../x", "--dir", "pki"), "MISUSE"),
        (("init", "--client", "ca", "--dir", "pki"), "MISUSE"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_next_step(run, pki, words, code):
    before = {path.name: path.read_bytes() for path in pki.iterdir()}
    result = run("certs", *words, "--json")
    problem = json.loads(result.stderr)
    assert (problem["error_code"], result.exit_code) == (code, 2 if code == "MISUSE" else 1)
    assert problem["next_step"]
    assert {path.name: path.read_bytes() for path in pki.iterdir()} == before


@pytest.mark.parametrize("broken", ["ca.pem", "ca.key", "crl.pem", "alice.pem"])
def test_a_broken_file_is_named(run, pki, broken):
    (pki / broken).write_text("nothing")
    result = run("certs", "show", "--dir", str(pki), "--json")
    assert json.loads(result.stderr)["error_code"] == "CERTIFICATE_UNREADABLE"
    assert broken in json.loads(result.stderr)["message"]


def test_a_file_that_is_no_certificate_stops_no_work_on_the_others(run, pki):
    (pki / "notes.pem").write_text("nothing")
    result = run("certs", "show", "--dir", str(pki), "--json")
    assert {"ca", "server", "polaris", "alice"} == {each["name"] for each in lines(result.stdout)[0]["certificates"]}
    assert result.exit_code == 1
    assert run("certs", "revoke", "alice", "--dir", str(pki)).exit_code == 0
    assert run("certs", "rotate", "polaris", "--dir", str(pki)).exit_code == 0
    unknown = json.loads(run("certs", "revoke", "bob", "--dir", str(pki), "--json").stderr)
    assert "notes cannot be read" in unknown["message"]
    named = json.loads(run("certs", "revoke", "notes", "--dir", str(pki), "--json").stderr)
    assert named["error_code"] == "CERTIFICATE_UNREADABLE"


def test_certificates_that_end_soon_are_marked(run, tmp_path):
    run("certs", "init", "--dir", str(tmp_path / "p"), "--days", "10")
    assert shown(run, tmp_path / "p")["polaris"]["state"].endswith("soon")
    assert "soon" in run("certs", "show", "--dir", str(tmp_path / "p")).stdout
