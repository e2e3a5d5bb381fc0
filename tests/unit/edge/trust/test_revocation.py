"""Revocation lists: which are believed, what they refuse, and for how long a fetched one is used."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from delegation.edge.errors import CertificateRefused, RevocationListUnavailable
from delegation.edge.trust.revocation import (
    MOST_BYTES,
    Fetched,
    OutdatedList,
    PublishedLists,
    RevocationCheck,
    RevocationList,
    StaticLists,
    policy_of,
    verified_list,
)
from tests.unit.edge.trust.pki import DAY, ISSUER, NOW, SERIAL, authority, certificate, ec_key, ed_key, revocation_list

SECOND = timedelta(seconds=1)
PLACE = "http://crl.example.test/1.crl"


def verified(*revoked: int, **options: Any) -> RevocationList:
    return verified_list(der(*revoked, **options), [authority()])


def der(*revoked: int, **options: Any) -> bytes:
    return revocation_list(revoked, **options).public_bytes(Encoding.DER)


def check(*lists: RevocationList, outdated: OutdatedList = OutdatedList.REFUSE) -> Callable[..., None]:
    checked = RevocationCheck(StaticLists(lists), outdated)
    return lambda of=None, now=NOW: checked.check(of or certificate(), now)


def point(*urls: str, **limits: Any) -> x509.IssuingDistributionPoint:
    names = [x509.UniformResourceIdentifier(url) for url in urls]
    unlimited = {
        "full_name": names or None,
        "relative_name": None,
        "only_contains_user_certs": False,
        "only_contains_ca_certs": False,
        "only_some_reasons": None,
        "indirect_crl": False,
        "only_contains_attribute_certs": False,
    }
    return x509.IssuingDistributionPoint(**{**unlimited, **limits})


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_a_list_is_read_in_both_encodings(encoding: Encoding) -> None:
    listed = verified_list(revocation_list([7, SERIAL]).public_bytes(encoding), [authority()])
    check(listed)(certificate(serial=8))
    with pytest.raises(CertificateRefused, match="is revoked"):
        check(listed)()


@pytest.mark.parametrize("data", [b"", b"nonsense", b"-----BEGIN X509 CRL-----\nAA==\n-----END X509 CRL-----\n"])
def test_what_is_no_list_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        verified_list(data, [authority()])


def test_a_list_that_another_key_signed_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not signed by"):
        verified(signer=ec_key())


def test_a_list_without_a_next_update_is_a_value_error() -> None:
    """It would never be out of date. No library writes one, so it is cut out of a list; its lengths shrink with it."""
    ends = NOW + DAY
    element = b"\x17\x0d" + f"{ends:%y%m%d%H%M%SZ}".encode()
    outer = der(extensions=[point(PLACE * 3)])
    assert outer[:2] == b"\x30\x82", "the length of the whole has two bytes"
    assert outer[4:6] == b"\x30\x81", "and that of what is signed one"
    length = int.from_bytes(outer[2:4]) - len(element)
    without = outer[:2] + length.to_bytes(2) + outer[4:6] + bytes([outer[6] - len(element)]) + outer[7:]
    with pytest.raises(ValueError, match="nextUpdate"):
        verified_list(without.replace(element, b"", 1), [authority()])


@pytest.mark.parametrize(
    "unfit",
    [
        [],
        [authority("CN=Another CA,O=Example")],
        [authority(key=ec_key())],
        [authority(key=ed_key())],
        [authority(signs_lists=False)],
    ],
    ids=["none", "another name", "another key", "another kind of key", "may not sign lists"],
)
def test_without_the_issuers_certificate_a_list_is_a_value_error(unfit: list[x509.Certificate]) -> None:
    with pytest.raises(ValueError, match="delegation:client-ca"):
        verified_list(der(), unfit)


def test_the_issuers_certificate_is_found_among_several_also_after_a_change_of_its_key() -> None:
    for fit in (authority(), authority(signs_lists=None)):
        verified_list(der(), [authority("CN=Another CA"), authority(key=ec_key()), fit])


@pytest.mark.parametrize(
    ("extension", "message"),
    [
        (x509.DeltaCRLIndicator(3), "delta list"),
        (point(indirect_crl=True), "indirect list"),
        (point(only_contains_attribute_certs=True), "all revoked client certificates"),
        (point(only_some_reasons=frozenset({x509.ReasonFlags.key_compromise})), "all revoked client certificates"),
        (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00"), "critical extension"),
    ],
    ids=["delta", "indirect", "attributes", "reasons", "unknown"],
)
def test_a_list_that_omits_revoked_certificates_is_a_value_error(extension: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verified(extensions=[extension])


def test_a_list_of_one_distribution_point_covers_only_its_certificates() -> None:
    limited = verified(7, extensions=[point(PLACE, only_contains_user_certs=True)])
    check(limited)(certificate(listed_at=PLACE))
    for elsewhere in (certificate(), certificate(listed_at="http://crl.example.test/2.crl")):
        with pytest.raises(CertificateRefused, match="no revocation list covers"):
            check(limited)(elsewhere)


def test_a_list_of_another_issuer_does_not_cover_a_certificate() -> None:
    others = verified_list(der(issuer="CN=Other CA"), [authority("CN=Other CA")])
    with pytest.raises(CertificateRefused, match="no revocation list covers"):
        check(others)()
    check(others, verified())()


def test_every_covering_list_is_asked() -> None:
    with pytest.raises(CertificateRefused, match="is revoked"):
        check(verified(7), verified(SERIAL))()


def test_a_list_of_the_future_refuses_every_certificate() -> None:
    with pytest.raises(CertificateRefused, match="not yet valid"):
        check(verified(this_update=NOW + SECOND))()
    check(verified(this_update=NOW))()


def test_after_its_next_update_a_list_refuses_every_certificate_unless_a_setting_says_otherwise() -> None:
    ended = verified(7, next_update=NOW)
    check(ended)()
    with pytest.raises(CertificateRefused, match="delegation:revocation-outdated"):
        check(ended)(now=NOW + SECOND)
    check(ended, outdated=OutdatedList.ADMIT)(now=NOW + SECOND)
    with pytest.raises(CertificateRefused, match="is revoked"):
        check(ended, outdated=OutdatedList.ADMIT)(certificate(serial=7), NOW + SECOND)


class Store:
    """Objects by URL, with a version that changes with each; counts the requests, and a manual clock."""

    def __init__(self, data: bytes) -> None:
        self.data: bytes | Exception = data
        self.requests: list[str | None] = []
        self.now = NOW

    def fetch(self, url: str, version: str | None) -> Fetched | None:
        assert url == "s3://lists/ca.crl"
        self.requests.append(version)
        if isinstance(self.data, Exception):
            raise self.data
        current = f"v{hash(self.data)}"
        return None if version == current else Fetched(self.data, current)

    def lists(self) -> PublishedLists:
        return PublishedLists(
            ["s3://lists/ca.crl"],
            fetch=self.fetch,
            authorities=[authority()],
            clock=lambda: self.now,
            policy=policy_of(timedelta(minutes=5), timedelta(hours=1)),
        )

    def later(self, **by: float) -> datetime:
        self.now += timedelta(**by)
        return self.now


def revoked(lists: PublishedLists, now: datetime = NOW, serial: int = SERIAL) -> bool:
    try:
        RevocationCheck(lists).check(certificate(serial=serial), now)
    except CertificateRefused as refused:
        if "is revoked" in str(refused):
            return True
        raise
    return False


def test_a_list_is_fetched_once_and_again_when_it_is_not_fresh() -> None:
    store = Store(der())
    lists = store.lists()
    assert not revoked(lists)
    assert not revoked(lists)
    assert store.requests == [None]
    store.data = der(SERIAL, this_update=NOW - DAY)
    store.later(minutes=5)
    assert revoked(lists)
    assert len(store.requests) == 2
    store.later(minutes=5)
    assert revoked(lists), "the object did not change, so it was not returned again"
    assert store.requests[0] is None
    assert store.requests[2] == f"v{hash(store.data)}"


def test_a_list_that_cannot_be_fetched_is_used_for_the_greatest_age_and_no_longer() -> None:
    store = Store(der())
    lists = store.lists()
    assert not revoked(lists)
    store.data = RevocationListUnavailable("S3 is silent")
    store.later(minutes=59)
    assert not revoked(lists)
    store.later(minutes=1)
    with pytest.raises(RevocationListUnavailable, match="too old"):
        revoked(lists)
    store.data = der()
    store.later(seconds=30)
    assert not revoked(lists), "it recovers by itself"


def test_without_any_list_no_certificate_is_admitted() -> None:
    store = Store(b"")
    lists = store.lists()
    store.data = RevocationListUnavailable("S3 is silent")
    with pytest.raises(RevocationListUnavailable, match="S3 is silent"):
        revoked(lists)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"nonsense", "cannot be read"),
        (b"0" * (MOST_BYTES + 1), "larger than"),
        (der(signer=ec_key()), "not signed"),
        (der(issuer="CN=Other CA"), "not signed"),
        (der(this_update=NOW + DAY / 2), "not yet valid"),
        (der(extensions=[x509.DeltaCRLIndicator(3)]), "delta list"),
    ],
    ids=["nonsense", "too large", "another key", "another issuer", "of the future", "delta"],
)
def test_an_unusable_object_does_not_replace_the_former_list(data: bytes, message: str) -> None:
    with pytest.raises(RevocationListUnavailable, match=message):
        revoked(Store(data).lists())
    store = Store(der(SERIAL))
    lists = store.lists()
    assert revoked(lists)
    store.data = data
    store.later(minutes=5)
    assert revoked(lists)
    assert len(store.requests) == 2


def test_a_former_list_that_is_put_back_does_not_admit_what_was_revoked_since() -> None:
    store = Store(der(SERIAL, this_update=NOW - DAY))
    lists = store.lists()
    assert revoked(lists)
    store.data = der(this_update=NOW - 2 * DAY)
    store.later(minutes=5)
    assert revoked(lists)


def test_after_its_next_update_a_list_is_fetched_again_at_once_but_not_at_each_request() -> None:
    store = Store(der(next_update=NOW + timedelta(minutes=1)))
    lists = store.lists()
    assert not revoked(lists)
    now = store.later(minutes=1, seconds=1)
    for _ in range(3):
        with pytest.raises(CertificateRefused, match="out of date"):
            RevocationCheck(lists).check(certificate(), now)
    assert len(store.requests) == 2
    store.data = der()
    now = store.later(seconds=30)
    assert not revoked(lists, now)


class TwoLists:
    """The lists of the authority, at a.crl, and of another key, in another name or the same while a key is replaced."""

    def __init__(self, name: str) -> None:
        self.name, self.key, self.now = name, ec_key(), NOW
        self.data: dict[str, bytes | Exception] = {"a": der(), "b": der(issuer=name, signer=self.key)}
        self.lists = PublishedLists(
            ["s3://lists/a.crl", "s3://lists/b.crl"],
            fetch=self.fetch,
            authorities=[authority(), authority(name, key=self.key)],
            clock=lambda: self.now,
            policy=policy_of(timedelta(minutes=5), timedelta(hours=1)),
        )

    def fetch(self, url: str, _version: str | None) -> Fetched:
        found = self.data[url.removeprefix("s3://lists/").removesuffix(".crl")]
        if isinstance(found, Exception):
            raise found
        return Fetched(found)

    def lose(self, name: str) -> None:
        self.data[name] = RevocationListUnavailable("S3 is silent")

    def admits(self) -> list[bool]:
        """Return whether a certificate of each of the two keys is admitted."""
        found = []
        for one in (certificate(), certificate(issuer=self.name, signer=self.key)):
            try:
                RevocationCheck(self.lists).check(one, self.now)
            except (RevocationListUnavailable, CertificateRefused):
                found.append(False)
            else:
                found.append(True)
        return found


@pytest.mark.parametrize("name", ["CN=Another CA", ISSUER])
@pytest.mark.parametrize("was_fetched", [True, False])
def test_a_list_that_cannot_be_fetched_refuses_what_it_may_revoke_and_no_other(name: str, was_fetched: bool) -> None:
    for lost, admitted in (("b", [True, False]), ("a", [False, True])):
        world = TwoLists(name)
        if was_fetched:
            assert world.admits() == [True, True]
            world.now += timedelta(minutes=61)
        world.lose(lost)
        assert world.admits() == admitted
        world.lose("a"), world.lose("b")
        world.now += timedelta(minutes=61)
        assert world.admits() == [False, False]


def test_a_list_of_one_place_decides_nothing_for_one_that_cannot_be_fetched() -> None:
    """The other list of the issuer may revoke the certificate."""
    world = TwoLists("CN=Another CA")
    world.data["a"] = der(extensions=[point(PLACE)])
    world.lose("b")
    with pytest.raises(RevocationListUnavailable):
        RevocationCheck(world.lists).check(certificate(listed_at=PLACE), NOW)
    world.data["a"] = der(SERIAL)
    world.now += timedelta(minutes=5)
    with pytest.raises(CertificateRefused, match="is revoked"):
        RevocationCheck(world.lists).check(certificate(), world.now)


@pytest.mark.parametrize(("refresh", "oldest"), [(300, 3600), (300, 300), (300, 60), (1, 1)])
def test_no_list_is_used_longer_than_the_greatest_age(refresh: int, oldest: int) -> None:
    policy = policy_of(timedelta(seconds=refresh), timedelta(seconds=oldest))
    assert policy.fresh + policy.stale == timedelta(seconds=oldest)
    assert policy.pause <= policy.fresh
