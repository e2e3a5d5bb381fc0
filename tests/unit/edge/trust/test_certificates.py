"""Only the pinned certificate is admitted, read from the configured source."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from delegation.edge.errors import CertificateRefused
from delegation.edge.trust.certificates import (
    LEAF_HEADER,
    CertificatePin,
    CertificateSource,
    load_revocation_list,
    parse_name,
    parse_serials,
    presented_certificate,
)
from tests.unit.edge.trust.pki import (
    DAY,
    ISSUER,
    NOW,
    SERIAL,
    SUBJECT,
    alb_leaf,
    authority,
    certificate,
    ec_key,
    ed_key,
    pem,
    revocation_list,
)


def pin(**changes: Any) -> CertificatePin:
    names = {"subject": parse_name(SUBJECT), "issuer": parse_name(ISSUER)}
    return CertificatePin(**{**names, "authority": authority(), **changes})


def from_gateway(of: x509.Certificate | None) -> dict[str, Any]:
    identity = {} if of is None else {"clientCert": {"clientCertPem": pem(of), "subjectDN": "CN=other"}}
    return {"headers": {}, "requestContext": {"identity": identity}}


def from_alb(of: x509.Certificate) -> dict[str, Any]:
    return {"headers": {LEAF_HEADER: alb_leaf(of)}, "requestContext": {"identity": {}}}


def test_the_pinned_certificate_is_admitted() -> None:
    pin().check(certificate(), NOW)
    pin(serials=[1, SERIAL]).check(certificate(), NOW)


def test_names_are_compared_whatever_their_escaping() -> None:
    odd = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example, Inc. + Söhne"),
            x509.NameAttribute(NameOID.COMMON_NAME, "polaris"),
        ]
    )
    for written in (r"CN=polaris,O=Example\, Inc. \+ Söhne", r"CN=polaris,O=Example\2C Inc. \2B S\C3\B6hne"):
        pin(subject=parse_name(written)).check(certificate(subject=odd), NOW)


def test_names_are_compared_whatever_their_string_types() -> None:
    printable = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example", _type=x509.name._ASN1Type.PrintableString),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Catalog"),
            x509.NameAttribute(NameOID.COMMON_NAME, "polaris", _type=x509.name._ASN1Type.PrintableString),
        ]
    )
    pin().check(certificate(subject=printable), NOW)


@pytest.mark.parametrize(
    "subject",
    [
        "CN=polaris,O=Example",
        "CN=polaris2,OU=Catalog,O=Example",
        "O=Example,OU=Catalog,CN=polaris",
        "CN=polaris,OU=Catalog,O=Example,C=DE",
        "CN=polaris,CN=polaris,OU=Catalog,O=Example",
        r"CN=polaris\,OU=Catalog\,O=Example",
        "CN=polaris+OU=Catalog,O=Example",
    ],
)
def test_another_subject_is_refused(subject: str) -> None:
    with pytest.raises(CertificateRefused, match="not the pinned one"):
        pin().check(certificate(subject=subject), NOW)


def test_the_same_subject_of_another_issuer_is_refused() -> None:
    with pytest.raises(CertificateRefused, match="not the pinned one"):
        pin().check(certificate(issuer="CN=Other CA,O=Example"), NOW)


def test_a_certificate_with_another_serial_is_refused() -> None:
    with pytest.raises(CertificateRefused, match="serial number"):
        pin(serials=[SERIAL + 1]).check(certificate(), NOW)


@pytest.mark.parametrize("now", [NOW - DAY - timedelta(seconds=1), NOW + DAY + timedelta(seconds=1)])
def test_a_certificate_outside_its_validity_is_refused(now: datetime) -> None:
    pin().check(certificate(), NOW - DAY)
    pin().check(certificate(), NOW + DAY)
    with pytest.raises(CertificateRefused, match="expired or not yet valid"):
        pin().check(certificate(), now)


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_a_revoked_certificate_is_refused(encoding: Encoding) -> None:
    listed = load_revocation_list(revocation_list([7, SERIAL]).public_bytes(encoding))
    pin(revoked=listed).check(certificate(serial=8), NOW)
    with pytest.raises(CertificateRefused, match="is revoked"):
        pin(revoked=listed).check(certificate(), NOW)


def test_an_outdated_or_foreign_revocation_list_refuses_every_certificate() -> None:
    with pytest.raises(CertificateRefused, match="revocation list is out of date"):
        pin(revoked=revocation_list(next_update=NOW - timedelta(seconds=1))).check(certificate(), NOW)
    with pytest.raises(CertificateRefused, match="not the pinned issuer's"):
        pin(revoked=revocation_list(issuer="CN=Other CA")).check(certificate(), NOW)


@pytest.mark.parametrize("data", [b"", b"nonsense", b"-----BEGIN X509 CRL-----\nAA==\n-----END X509 CRL-----\n"])
def test_an_unreadable_revocation_list_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        load_revocation_list(data)


def test_the_certificate_is_read_as_api_gateway_and_as_an_alb_pass_it() -> None:
    given = certificate()
    assert presented_certificate(from_gateway(given), CertificateSource.APIGATEWAY) == given
    assert presented_certificate(from_alb(given), CertificateSource.ALB) == given


def test_the_source_of_the_certificate_is_not_deduced_from_the_request() -> None:
    """A caller can send an ALB's header through API Gateway."""
    forged, real = certificate(), certificate(subject="CN=other")
    both = {**from_gateway(real), "headers": {LEAF_HEADER: alb_leaf(forged)}}
    assert presented_certificate(both, CertificateSource.APIGATEWAY) == real
    with pytest.raises(CertificateRefused, match="no client certificate"):
        presented_certificate(from_alb(forged), CertificateSource.APIGATEWAY)
    with pytest.raises(CertificateRefused, match="no client certificate"):
        presented_certificate(from_gateway(real), CertificateSource.ALB)


def test_a_repeated_certificate_header_is_refused() -> None:
    event = from_alb(certificate())
    event["multiValueHeaders"] = {LEAF_HEADER.lower(): [alb_leaf(certificate()), alb_leaf(certificate(serial=2))]}
    with pytest.raises(CertificateRefused, match="no client certificate"):
        presented_certificate(event, CertificateSource.ALB)


@pytest.mark.parametrize(
    "event",
    [{}, {"requestContext": None}, {"requestContext": {"identity": None}}, from_gateway(None)],
)
@pytest.mark.parametrize("source", CertificateSource)
def test_a_request_without_a_certificate_is_refused(event: dict[str, Any], source: CertificateSource) -> None:
    with pytest.raises(CertificateRefused, match="no client certificate"):
        presented_certificate(event, source)


@pytest.mark.parametrize("text", ["nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "é"])
def test_an_unreadable_certificate_is_refused(text: str) -> None:
    event = {"requestContext": {"identity": {"clientCert": {"clientCertPem": text}}}}
    with pytest.raises(CertificateRefused, match="cannot be read"):
        presented_certificate(event, CertificateSource.APIGATEWAY)


@pytest.mark.parametrize("text", ["", "polaris", "CN=a, O=b", "cn=a", "CN=a;O=b", "FOO=a", "CN=a,", "C=Germany"])
def test_a_name_in_another_format_than_rfc_4514_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="distinguished name"):
        parse_name(text)


def test_an_email_address_can_be_part_of_a_name() -> None:
    assert parse_name("emailAddress=a@b.test,CN=x") == parse_name("E=a@b.test,CN=x")


@pytest.mark.parametrize(
    ("text", "serials"),
    [("", set()), (" ", set()), ("0a:1b", {0x0A1B}), ("0A:1b, 2c3D", {0x0A1B, 0x2C3D}), ("ff", {255})],
)
def test_serials_are_hexadecimal(text: str, serials: set[int]) -> None:
    assert parse_serials(text) == serials


@pytest.mark.parametrize("text", ["0x1", "g", "1,,2", "1 2", ",", "-1", "a" * 41])
def test_an_invalid_serial_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        parse_serials(text)


def test_a_revocation_list_that_another_key_signed_refuses_every_certificate() -> None:
    with pytest.raises(CertificateRefused, match="not signed by the pinned issuer"):
        pin(revoked=revocation_list(signer=ec_key())).check(certificate(), NOW)


def test_a_revocation_list_of_the_future_refuses_every_certificate() -> None:
    future = revocation_list(this_update=NOW + timedelta(seconds=1))
    with pytest.raises(CertificateRefused, match="not yet valid"):
        pin(revoked=future).check(certificate(), NOW)


@pytest.mark.parametrize(
    "unfit",
    [
        None,
        authority("CN=Another CA,O=Example"),
        authority(key=ec_key()),
        authority(key=ed_key()),
        authority(signs_lists=False),
    ],
    ids=["none", "another name", "another key", "another kind of key", "may not sign lists"],
)
def test_without_the_issuers_certificate_a_revocation_list_refuses_every_certificate(
    unfit: x509.Certificate | None,
) -> None:
    with pytest.raises(CertificateRefused, match="not signed by the pinned issuer"):
        pin(revoked=revocation_list(), authority=unfit).check(certificate(), NOW)


def test_an_issuers_certificate_may_leave_open_what_its_key_is_for() -> None:
    pin(revoked=revocation_list(), authority=authority(signs_lists=None)).check(certificate(), NOW)
    pin(revoked=revocation_list(this_update=NOW)).check(certificate(), NOW)
