"""Certificate revocation lists (RFC 5280, Sections 5 and 6.3), from settings or fetched and cached. A list is used only
if its issuer's key signed it and it names all revoked client certificates."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final, NoReturn, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from delegation.edge.errors import CertificateRefused, RevocationListUnavailable
from delegation.edge.trust.cache import CachedSource, CachePolicy

MOST_BYTES: Final = 8 * 1024 * 1024
"""The largest list that is read; about 200,000 revoked certificates."""


_UNREADABLE: Final = (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)
"""What cryptography raises for names and extensions that it cannot parse."""
_CLIENTS: Final = "the client certificate"
_LONGEST_CHAIN: Final = 8
_OBJECT: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/([\w./=+@()!-]+)", re.ASCII)
_NOT_MODIFIED: Final = 304


class Listed(StrEnum):
    """Which certificates a list names (RFC 5280, Section 5.2.5)."""

    ALL = "all"
    CLIENTS = "clients"
    AUTHORITIES = "authorities"


class OutdatedList(StrEnum):
    """What a list means, after its nextUpdate, for a certificate that it does not name."""

    REFUSE = "refuse"
    ADMIT = "admit"


@dataclass(frozen=True, slots=True)
class RevocationList:
    """A list with a verified signature; `places` are the distribution points to which it is limited, if any. `of` is
    the kind of certificate to which it is limited, `signer` a certificate of the key that signed it."""

    listed: x509.CertificateRevocationList
    this_update: datetime
    next_update: datetime
    places: frozenset[x509.GeneralName] = frozenset()
    of: Listed = Listed.ALL
    signer: x509.Certificate | None = None

    def covers(self, certificate: x509.Certificate) -> bool:
        """Return whether the list decides on a certificate (RFC 5280, Section 6.3.3, step b)."""
        if self.listed.issuer != certificate.issuer:
            return False
        if self.of is not Listed.ALL and _is_authority(certificate) != (self.of is Listed.AUTHORITIES):
            return False
        return not self.places or bool(self.places & _places_of(certificate))

    def check(
        self, certificate: x509.Certificate, now: datetime, outdated: OutdatedList, *, what: str = _CLIENTS
    ) -> None:
        """Raise CertificateRefused for a revoked certificate, and for any if the list is not valid at `now`. `what`
        names the certificate in the error's text."""
        if self.this_update > now:
            raise CertificateRefused(f"the revocation list for {what} is not yet valid")
        if self.listed.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
            raise CertificateRefused(f"{what} is revoked")
        if self.next_update < now and outdated is OutdatedList.REFUSE:
            raise CertificateRefused(
                f"the revocation list for {what} is out of date (delegation:revocation-outdated). Upload a newer list"
            )


@dataclass(frozen=True, slots=True)
class UnavailableList:
    """A list that cannot be fetched or used: it refuses what it may cover. That is what its `issuer` issued, or
    everything if the issuer is unknown, except what a key signed whose complete list is present (`decided` are
    certificates of these keys)."""

    error: RevocationListUnavailable
    issuer: x509.Name | None
    decided: tuple[x509.Certificate, ...] = ()

    def covers(self, certificate: x509.Certificate) -> bool:
        """Return whether the list may decide on a certificate."""
        if self.issuer is not None and certificate.issuer != self.issuer:
            return False
        return not any(_issued(signer, certificate) for signer in self.decided)

    def check(self, *_: object, **__: object) -> NoReturn:
        raise self.error


AnyList = RevocationList | UnavailableList


class RevocationLists(Protocol):
    def current(self) -> Sequence[AnyList]: ...


@dataclass(frozen=True, slots=True)
class StaticLists:
    configured: tuple[RevocationList, ...]

    def current(self) -> Sequence[AnyList]:
        return self.configured


@dataclass(frozen=True, slots=True)
class RevocationCheck:
    """Refuses what the lists revoke, and what no list covers: a missing list is not an empty one. A certificate is as
    good as the authorities between it and a root: `authorities` are their certificates. An authority that no list
    covers counts as not revoked; so does a root, which is revoked by its removal from the trust store."""

    lists: RevocationLists
    outdated: OutdatedList = OutdatedList.REFUSE
    authorities: tuple[x509.Certificate, ...] = ()

    def check(self, certificate: x509.Certificate, now: datetime) -> None:
        """Raise CertificateRefused, or RevocationListUnavailable, unless the certificate is known not to be revoked."""
        lists = self.lists.current()
        covering = [revocation_list for revocation_list in lists if revocation_list.covers(certificate)]
        if not covering:
            raise CertificateRefused(
                "no revocation list covers the client certificate. Add its issuer's list to delegation:revocation-lists"
            )
        for revocation_list in covering:
            revocation_list.check(certificate, now, self.outdated)
        self._check_issuers(certificate, now, lists, _LONGEST_CHAIN)

    def _check_issuers(
        self, certificate: x509.Certificate, now: datetime, lists: Sequence[AnyList], longest: int
    ) -> None:
        """Raise CertificateRefused if each authority that may have signed a certificate, or one above it, is revoked.
        An authority may have several certificates for one key during a renewal: one that is not revoked suffices."""
        refusal: CertificateRefused | None = None
        for issuer in self.authorities:
            if not longest or not _issued(issuer, certificate):
                continue
            if issuer.issuer == issuer.subject:
                return
            try:
                for revocation_list in lists:
                    if revocation_list.covers(issuer):
                        revocation_list.check(
                            issuer, now, self.outdated, what=f"the authority {issuer.subject.rfc4514_string()}"
                        )
                self._check_issuers(issuer, now, lists, longest - 1)
            except CertificateRefused as error:
                refusal = error
            else:
                return
        if refusal is not None:
            raise refusal


@dataclass(frozen=True, slots=True)
class Fetched:
    """A list as stored, and the version of the object (its ETag) for the next request."""

    data: bytes
    version: str | None = None


Fetch = Callable[[str, str | None], Fetched | None]
"""Fetches a URL; None if it still has the given version. Raises RevocationListUnavailable."""


def s3_object(url: str) -> tuple[str, str]:
    """Return bucket and key of `s3://bucket/key`. Raises ValueError."""
    match = _OBJECT.fullmatch(url)
    if match is None:
        raise ValueError("must be the URL of an object, such as s3://bucket/lists/ca.crl")
    return match[1], match[2]


def s3_fetch(s3: Any) -> Fetch:
    """Return a function that fetches an object with a boto3 client, unless it still has the given ETag. It raises
    RevocationListUnavailable (Amazon S3 API, "GetObject"). Without `s3:ListBucket` S3 answers AccessDenied for a
    missing object."""

    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - few deployments have lists in S3

    def fetch(url: str, version: str | None) -> Fetched | None:
        bucket, key = s3_object(url)
        condition = {} if version is None else {"IfNoneMatch": version}
        try:
            answer = s3.get_object(Bucket=bucket, Key=key, **condition)
            data: bytes = answer["Body"].read(MOST_BYTES + 1)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == _NOT_MODIFIED:
                return None
            code = error.response.get("Error", {}).get("Code", "unknown")
            raise RevocationListUnavailable(f"S3 refused the revocation list {url}: {code}") from None
        except (BotoCoreError, OSError) as error:
            raise RevocationListUnavailable(
                f"the revocation list {url} cannot be fetched: {type(error).__name__}"
            ) from None
        return Fetched(data, answer.get("ETag"))

    return fetch


@dataclass(frozen=True, slots=True)
class _Published:
    parsed: RevocationList
    version: str | None


class PublishedLists:
    """Lists that their issuers publish at URLs, fetched when used and not fresh; thread-safe. After nextUpdate a list
    is not fresh: its issuer must have published another."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        fetch: Fetch,
        authorities: Sequence[x509.Certificate],
        clock: Callable[[], datetime],
        policy: CachePolicy,
    ) -> None:
        self._fetch = fetch
        self._authorities = tuple(authorities)
        self._clock = clock
        self._issuers: dict[str, x509.Name] = {}
        self._sources = {
            url: CachedSource(
                partial(self._refresh, url),
                what=f"the revocation list {url}",
                unavailable=RevocationListUnavailable,
                clock=clock,
                policy=policy,
            )
            for url in urls
        }

    def current(self) -> Sequence[AnyList]:
        now, lists, missing = self._clock(), list[RevocationList](), dict[str, RevocationListUnavailable]()
        for url, source in self._sources.items():
            try:
                lists.append(source.get(lambda known: known.parsed.next_update >= now).parsed)
            except RevocationListUnavailable as error:
                missing[url] = error
        complete = [
            complete_list for complete_list in lists if complete_list.of is Listed.ALL and not complete_list.places
        ]
        decided = tuple(complete_list.signer for complete_list in complete if complete_list.signer is not None)
        return [*lists, *(UnavailableList(error, self._issuers.get(url), decided) for url, error in missing.items())]

    def _refresh(self, url: str, former: _Published | None) -> _Published:
        fetched = self._fetch(url, None if former is None else former.version)
        if fetched is None:
            if former is None:
                raise RevocationListUnavailable(f"S3 did not return the revocation list {url}")
            return former
        try:
            parsed = verified_list(fetched.data, self._authorities)
        except ValueError as error:
            raise RevocationListUnavailable(f"the revocation list {url} {error}") from None
        if parsed.this_update > self._clock():
            raise RevocationListUnavailable(f"the revocation list {url} is not yet valid")
        if former is not None and parsed.this_update < former.parsed.this_update:
            # A former list put back would admit what was revoked since.
            raise RevocationListUnavailable(f"the revocation list {url} is older than the list that it replaced")
        self._issuers[url] = parsed.listed.issuer
        return _Published(parsed, fetched.version)


def policy_of(refresh: timedelta, oldest: timedelta) -> CachePolicy:
    """Return the policy that fetches a list again after `refresh`, and discards it `oldest` after its fetch."""
    fresh = min(refresh, oldest)
    return CachePolicy(fresh=fresh, stale=oldest - fresh, pause=min(fresh, CachePolicy().pause))


def verified_list(data: bytes, authorities: Sequence[x509.Certificate]) -> RevocationList:
    """Parse a complete list in PEM or DER that an authority signed. ValueError's text continues "the revocation list
    …"."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"is larger than {MOST_BYTES} bytes")
    try:
        listed = _parse(data)
        next_update, (places, of) = listed.next_update_utc, _limits(listed)
    except _UNREADABLE as error:
        raise ValueError(str(error) if isinstance(error, _Limited) else "cannot be read") from None
    if next_update is None:
        raise ValueError("has no nextUpdate, which RFC 5280 requires")
    signer = next((authority for authority in authorities if is_signed_by(listed, authority)), None)
    if signer is None:
        raise ValueError("is not signed by its issuer's certificate in delegation:client-ca")
    return RevocationList(listed, listed.last_update_utc, next_update, places, of, signer)


def is_signed_by(listed: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    """Return whether the key of the issuer's certificate, which may sign lists, signed it (RFC 5280, Section 6.3.3)."""
    if authority.subject != listed.issuer:
        return False
    try:
        usage = authority.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        usage = None
    try:
        # Without the extension, a certificate permits any use (RFC 5280, Section 4.2.1.3).
        return (usage is None or usage.crl_sign) and listed.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return False


class _Limited(ValueError):
    """The list does not name all revoked client certificates."""


def _parse(data: bytes) -> x509.CertificateRevocationList:
    if data.lstrip().startswith(b"-----BEGIN"):
        return x509.load_pem_x509_crl(data)
    return x509.load_der_x509_crl(data)


def _limits(listed: x509.CertificateRevocationList) -> tuple[frozenset[x509.GeneralName], Listed]:
    """Return a list's distribution points and kind of certificates (RFC 5280, Section 5.2.5). Raises _Limited."""
    places: frozenset[x509.GeneralName] = frozenset()
    of = Listed.ALL
    for extension in listed.extensions:
        match extension.value:
            case x509.IssuingDistributionPoint() as point:
                partial_reasons = point.only_some_reasons is not None or point.relative_name is not None
                if point.only_contains_attribute_certs or partial_reasons:
                    raise _Limited("does not name all revoked client certificates")
                if point.indirect_crl:
                    raise _Limited("is an indirect list, with certificates of other issuers")
                places = frozenset(point.full_name or ())
                if point.only_contains_ca_certs or point.only_contains_user_certs:
                    of = Listed.AUTHORITIES if point.only_contains_ca_certs else Listed.CLIENTS
            case x509.DeltaCRLIndicator():
                raise _Limited("is a delta list; configure the complete one")
            case x509.UnrecognizedExtension() if extension.critical:
                raise _Limited("has an unknown critical extension")
            case _:
                pass
    return places, of


def _is_authority(certificate: x509.Certificate) -> bool:
    """Return whether a certificate is an authority's (RFC 5280, Section 4.2.1.9)."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return False


def _issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError, ValueError, UnsupportedAlgorithm):
        return False
    return True


def _places_of(certificate: x509.Certificate) -> frozenset[x509.GeneralName]:
    """Return where a certificate states that its revocation is listed (RFC 5280, Section 4.2.1.13)."""
    try:
        points = certificate.extensions.get_extension_for_class(x509.CRLDistributionPoints).value
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return frozenset()
    return frozenset(name for point in points for name in point.full_name or ())
