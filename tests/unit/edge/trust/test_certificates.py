"""Only the pinned certificate is admitted, read from the configured source."""

import base64
import hashlib
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from delegation.edge.errors import CertificateRefused
from delegation.edge.trust.authorizer import (
    LEAF_HEADER,
    SERIAL_HEADER,
    CertificatePin,
    CertificateReader,
    CertificateSource,
    load_authorities,
    parse_name,
    parse_serials,
    thumbprint,
)
from delegation.edge.trust.revocation import RevocationCheck, StaticLists, verified_list
from tests.unit.edge.trust.pki import (
    DAY,
    ENDPOINT,
    ISSUER,
    NOW,
    SERIAL,
    SUBJECT,
    alb_headers,
    alb_leaf,
    authority,
    certificate,
    pem,
    revocation_list,
)


def pin(**changes: Any) -> CertificatePin:
    names = {"subject": parse_name(SUBJECT), "issuer": parse_name(ISSUER)}
    return CertificatePin(**{**names, **changes})


APIGATEWAY = CertificateReader()
ALB = CertificateReader(CertificateSource.ALB, frozenset({ENDPOINT}))


def from_gateway(of: x509.Certificate | None) -> dict[str, Any]:
    identity = {} if of is None else {"clientCert": {"clientCertPem": pem(of), "subjectDN": "CN=other"}}
    return {"headers": {}, "requestContext": {"identity": identity}}


def from_alb(of: x509.Certificate, *, endpoint: str | None = ENDPOINT, **changes: str) -> dict[str, Any]:
    """Return the event of a private API behind an ALB, whose headers `changes` replaces (`_` for `-`)."""
    changed = {name.replace("_", "-"): value for name, value in changes.items()}
    identity = {"clientCert": None, "sourceIp": "10.0.1.7", "vpcId": "vpc-0f", "vpceId": endpoint}
    return {"headers": {**alb_headers(of), **changed}, "requestContext": {"identity": identity}}


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
    "presented",
    [
        *[
            {"subject": subject}
            for subject in (
                "CN=polaris,O=Example",
                "CN=polaris2,OU=Catalog,O=Example",
                "O=Example,OU=Catalog,CN=polaris",
                "CN=polaris,OU=Catalog,O=Example,C=DE",
                "CN=polaris,CN=polaris,OU=Catalog,O=Example",
                r"CN=polaris\,OU=Catalog\,O=Example",
                "CN=polaris+OU=Catalog,O=Example",
            )
        ],
        {"issuer": "CN=Other CA,O=Example"},
    ],
    ids=str,
)
def test_another_subject_or_issuer_is_refused(presented: dict[str, str]) -> None:
    with pytest.raises(CertificateRefused, match="another subject or issuer"):
        pin().check(certificate(**presented), NOW)


def test_a_certificate_with_another_serial_is_refused() -> None:
    with pytest.raises(CertificateRefused, match="serial number"):
        pin(serials=[SERIAL + 1]).check(certificate(), NOW)


@pytest.mark.parametrize("now", [NOW - DAY - timedelta(seconds=1), NOW + DAY + timedelta(seconds=1)])
def test_a_certificate_outside_its_validity_is_refused(now: datetime) -> None:
    pin().check(certificate(), NOW - DAY)
    pin().check(certificate(), NOW + DAY)
    with pytest.raises(CertificateRefused, match="expired or not yet valid"):
        pin().check(certificate(), now)


def test_a_revoked_certificate_is_refused() -> None:
    listed = verified_list(pem(revocation_list([7, SERIAL])).encode(), [authority()])
    check = RevocationCheck(StaticLists((listed,)))
    pin(revocation=check).check(certificate(serial=8), NOW)
    with pytest.raises(CertificateRefused, match="is revoked"):
        pin(revocation=check).check(certificate(), NOW)


def test_the_certificate_is_read_as_api_gateway_and_as_an_alb_pass_it() -> None:
    given = certificate()
    assert APIGATEWAY.presented(from_gateway(given)) == given
    assert ALB.presented(from_alb(given)) == given


def test_the_source_of_the_certificate_is_not_deduced_from_the_request() -> None:
    """A caller can send an ALB's headers through API Gateway."""
    forged, real = certificate(), certificate(subject="CN=other")
    both = {**from_gateway(real), "headers": alb_headers(forged)}
    assert APIGATEWAY.presented(both) == real
    with pytest.raises(CertificateRefused, match="no client certificate"):
        APIGATEWAY.presented(from_alb(forged))
    with pytest.raises(CertificateRefused, match="VPC endpoint"):
        ALB.presented(both)


@pytest.mark.parametrize("endpoint", [None, "", "vpce-0000", ENDPOINT.upper(), f"{ENDPOINT} "])
def test_an_albs_headers_are_believed_only_from_its_vpc_endpoint(endpoint: str | None) -> None:
    with pytest.raises(CertificateRefused, match="VPC endpoint"):
        ALB.presented(from_alb(certificate(), endpoint=endpoint))
    with pytest.raises(CertificateRefused, match="VPC endpoint"):
        ALB.presented({**from_alb(certificate()), "requestContext": {"identity": {}, "vpceId": ENDPOINT}})


def test_an_alb_that_does_not_verify_is_refused() -> None:
    """In the mode "passthrough" it sends only the whole chain, and a caller could send the other headers itself."""
    event = from_alb(certificate(), X_Amzn_Mtls_Clientcert=alb_leaf(certificate()))
    with pytest.raises(CertificateRefused, match="listener"):
        ALB.presented(event)


@pytest.mark.parametrize("stated", ["", "zz", "-1", f"{SERIAL + 1:X}", f"{SERIAL:X} ", "0" * 41])
def test_headers_that_name_different_certificates_are_refused(stated: str) -> None:
    with pytest.raises(CertificateRefused, match="serial number"):
        ALB.presented(from_alb(certificate(), X_Amzn_Mtls_Clientcert_Serial_Number=stated))


def test_the_serial_number_may_have_colons_and_leading_zeros() -> None:
    for stated in ("0A:1B:2C", "0a1b2c", "A1B2C"):
        given = from_alb(certificate(), X_Amzn_Mtls_Clientcert_Serial_Number=stated)
        assert ALB.presented(given).serial_number == SERIAL


@pytest.mark.parametrize("name", [LEAF_HEADER, SERIAL_HEADER])
def test_a_repeated_header_of_the_alb_is_refused(name: str) -> None:
    event = from_alb(certificate())
    repeated = [event["headers"][name], alb_headers(certificate(serial=2))[name]]
    event["multiValueHeaders"] = {**{key: [value] for key, value in event["headers"].items()}, name: repeated[:1]}
    event["multiValueHeaders"][name.lower()] = repeated[1:]
    with pytest.raises(CertificateRefused, match=r"no client certificate|serial number"):
        ALB.presented(event)


@pytest.mark.parametrize(
    "event", [{}, {"requestContext": None}, {"requestContext": {"identity": None}}, from_gateway(None)]
)
@pytest.mark.parametrize("reader", [APIGATEWAY, ALB], ids=["apigateway", "alb"])
def test_a_request_without_a_certificate_is_refused(event: dict[str, Any], reader: CertificateReader) -> None:
    with pytest.raises(CertificateRefused, match=r"no client certificate|VPC endpoint"):
        reader.presented(event)


@pytest.mark.parametrize("text", ["nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "é"])
def test_an_unreadable_certificate_is_refused(text: str) -> None:
    event = {"requestContext": {"identity": {"clientCert": {"clientCertPem": text}}}}
    with pytest.raises(CertificateRefused, match="cannot be read"):
        APIGATEWAY.presented(event)


def test_the_thumbprint_is_that_of_rfc_8705() -> None:
    given = certificate()
    found = thumbprint(given)
    assert base64.urlsafe_b64decode(found + "=") == hashlib.sha256(given.public_bytes(Encoding.DER)).digest()
    assert "=" not in found


def test_several_authorities_are_read_from_one_text() -> None:
    both = load_authorities(pem(authority()) + pem(authority("CN=Next CA")))
    assert [one.subject.rfc4514_string() for one in both] == [ISSUER, "CN=Next CA"]
    with pytest.raises(ValueError, match="PEM certificates"):
        load_authorities("nonsense")


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
