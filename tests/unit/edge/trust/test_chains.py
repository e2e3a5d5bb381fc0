"""Revoked authorities between a client certificate and the root, and lists that are limited to authorities."""

from collections.abc import Sequence
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from delegation.edge.errors import CertificateRefused
from delegation.edge.trust.revocation import Listed, OutdatedList, RevocationCheck, StaticLists, verified_list
from tests.unit.edge.trust.pki import NOW, SERIAL, authority, certificate, revocation_list

ROOT, MIDDLE, LOWER = "CN=Root", "CN=Issuing CA", "CN=Lower CA"
KEYS = {name: ec.generate_private_key(ec.SECP256R1()) for name in (ROOT, MIDDLE, LOWER)}
ROOT_CERTIFICATE = authority(ROOT, key=KEYS[ROOT])


def below(name: str, issuer: str, serial: int) -> x509.Certificate:
    return authority(name, key=KEYS[name], issuer=issuer, signer=KEYS[issuer], serial=serial)


MIDDLE_CERTIFICATE = below(MIDDLE, ROOT, 7)
LOWER_CERTIFICATE = below(LOWER, MIDDLE, 8)
AUTHORITIES = (ROOT_CERTIFICATE, MIDDLE_CERTIFICATE, LOWER_CERTIFICATE)


def listed(issuer: str, *revoked: int, **limits: Any) -> Any:
    extensions = [] if not limits else [limited(**limits)]
    found = revocation_list(revoked, issuer=issuer, signer=KEYS[issuer], extensions=extensions)
    return verified_list(found.public_bytes(Encoding.DER), AUTHORITIES)


def limited(*, authorities: bool = False, clients: bool = False) -> x509.IssuingDistributionPoint:
    return x509.IssuingDistributionPoint(
        full_name=None,
        relative_name=None,
        only_contains_user_certs=clients,
        only_contains_ca_certs=authorities,
        only_some_reasons=None,
        indirect_crl=False,
        only_contains_attribute_certs=False,
    )


def check(presented: x509.Certificate, *lists: Any, known: Sequence[x509.Certificate] = AUTHORITIES) -> None:
    RevocationCheck(StaticLists(lists), OutdatedList.REFUSE, tuple(known)).check(presented, NOW)


def leaf(issuer: str = MIDDLE) -> x509.Certificate:
    return certificate(issuer=issuer, signer=KEYS[issuer])


def test_a_certificate_of_an_authority_that_is_not_revoked_is_admitted() -> None:
    check(leaf(), listed(MIDDLE), listed(ROOT, 99))
    check(leaf(), listed(MIDDLE))  # the root publishes no list
    check(leaf(LOWER), listed(LOWER), listed(MIDDLE), listed(ROOT))


def test_a_revoked_authority_refuses_its_certificates() -> None:
    with pytest.raises(CertificateRefused, match=r"the authority CN=Issuing CA is revoked"):
        check(leaf(), listed(MIDDLE), listed(ROOT, 7))


def test_a_revoked_authority_refuses_the_certificates_of_those_below_it() -> None:
    with pytest.raises(CertificateRefused, match=r"the authority CN=Issuing CA is revoked"):
        check(leaf(LOWER), listed(LOWER), listed(MIDDLE), listed(ROOT, 7))
    with pytest.raises(CertificateRefused, match=r"the authority CN=Lower CA is revoked"):
        check(leaf(LOWER), listed(LOWER), listed(MIDDLE, 8), listed(ROOT))


def test_a_renewed_authority_whose_former_certificate_is_revoked_is_admitted() -> None:
    renewed = below(MIDDLE, ROOT, 9)
    for known in ((*AUTHORITIES, renewed), (renewed, *AUTHORITIES)):
        check(leaf(), listed(MIDDLE), listed(ROOT, 7), known=known)
    with pytest.raises(CertificateRefused):
        check(leaf(), listed(MIDDLE), listed(ROOT, 7, 9), known=(*AUTHORITIES, renewed))


def test_an_authority_of_the_same_name_with_another_key_decides_nothing() -> None:
    stranger = authority(MIDDLE, key=KEYS[LOWER], issuer=ROOT, signer=KEYS[ROOT], serial=7)
    check(leaf(), listed(MIDDLE), listed(ROOT, 7), known=(stranger, ROOT_CERTIFICATE, below(MIDDLE, ROOT, 9)))


def test_authorities_that_issued_each_other_end_the_search() -> None:
    circle = (below(MIDDLE, LOWER, 3), below(LOWER, MIDDLE, 4))
    check(leaf(), listed(MIDDLE), known=circle)


def test_a_list_of_authorities_alone_revokes_them_and_covers_no_client() -> None:
    only = listed(ROOT, 7, SERIAL, authorities=True)
    assert only.of is Listed.AUTHORITIES
    with pytest.raises(CertificateRefused, match="is revoked"):
        check(leaf(), listed(MIDDLE), only)
    with pytest.raises(CertificateRefused, match="no revocation list covers"):
        check(leaf(ROOT), only)


def test_a_list_of_clients_alone_covers_no_authority() -> None:
    only = listed(ROOT, 7, clients=True)
    check(leaf(), listed(MIDDLE), only)
    check(leaf(ROOT), only)
