"""Path-style S3 requests (Amazon S3 API Reference), and the vended keys that bound them.

The catalog fills the registry and the S3 front enforces it, because the emulated STS ignores session policies.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from urllib.parse import parse_qsl, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape


class Access(Enum):
    """The access that a request needs; all but OTHER are in the policy of Polaris' vended credentials."""

    READ = "s3:GetObject"
    WRITE = "s3:PutObject"
    DELETE = "s3:DeleteObject"
    LIST = "s3:ListBucket"
    LOCATION = "s3:GetBucketLocation"
    OTHER = "anything else"


@dataclass(frozen=True, slots=True)
class VendedKey:
    """An access key for objects below `prefixes`, (bucket, key prefix ending in "/"), until `expires_at`."""

    access_key_id: str
    session_token: str = field(repr=False)
    prefixes: tuple[tuple[str, str], ...]
    writable: bool
    expires_at: datetime

    def has_token(self, token: str) -> bool:
        return hmac.compare_digest(self.session_token.encode(), token.encode())

    def allows(self, access: Access, bucket: str, key: str) -> bool:
        """Return whether `access` to `key` (for LIST the requested prefix) is within bounds; ignores the expiry."""
        if access is Access.OTHER:
            return False
        if access is Access.LOCATION:
            return any(bucket == own for own, _ in self.prefixes)
        if access in {Access.WRITE, Access.DELETE} and not self.writable:
            return False
        # Listing "table" without the slash would also show "table2"; Polaris' condition is `table/*`.
        return any(bucket == own and key.startswith(prefix) for own, prefix in self.prefixes)


class VendedKeys(dict[str, VendedKey]):
    """The registry by access key id. A key that is not in it belongs to an administrator."""


# The sub-resources whose PUT, POST and DELETE are part of writing an object; any other (acl, tagging, …) is not vended.
_UPLOADS = frozenset({"uploads", "uploadId", "partNumber", "x-id"})
_LISTING = frozenset(
    {"list-type", "prefix", "delimiter", "marker", "max-keys", "encoding-type", "continuation-token", "start-after"}
    | {"fetch-owner", "x-id"}
)
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    code: str
    message: str

    def xml(self) -> bytes:
        body = f"<Error><Code>{escape(self.code)}</Code><Message>{escape(self.message)}</Message></Error>"
        return b'<?xml version="1.0" encoding="UTF-8"?>\n' + body.encode()


ACCESS_DENIED = Refusal(403, "AccessDenied", "Access Denied")
EXPIRED = Refusal(400, "ExpiredToken", "The provided token has expired.")
UNKNOWN_KEY = Refusal(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
BAD_TOKEN = Refusal(400, "InvalidToken", "The provided token is malformed or otherwise invalid.")
MALFORMED = Refusal(400, "MalformedXML", "The XML you provided was not well-formed.")


@dataclass(frozen=True, slots=True)
class S3Request:
    """The decoded parts of a request; `key` is empty for the bucket itself."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @classmethod
    def parse(cls, method: str, target: str, headers: Mapping[str, str]) -> "S3Request":
        """Parse the raw `target` with S3's decoding, which leaves `+` in a path unchanged."""
        path, _, query = target.partition("?")
        bucket, _, key = path.lstrip("/").partition("/")
        pairs = dict(parse_qsl(query, keep_blank_values=True))
        return cls(method, unquote(bucket), unquote(key), pairs, headers)

    @property
    def is_multi_delete(self) -> bool:
        return self.method == "POST" and not self.key and "delete" in self.query

    @property
    def access_key_id(self) -> str | None:
        """The key of a signed header (versions 4 and 2) or a presigned URL; None for an anonymous request."""
        authorization = self.headers.get("authorization", "")
        if match := _CREDENTIAL.search(authorization):
            return match.group(1)
        if authorization.startswith("AWS "):
            return authorization.removeprefix("AWS ").partition(":")[0]
        credential = self.query.get("X-Amz-Credential") or self.query.get("AWSAccessKeyId")
        return credential.partition("/")[0] if credential else None

    @property
    def session_token(self) -> str | None:
        return self.headers.get("x-amz-security-token") or self.query.get("X-Amz-Security-Token")

    def accesses(self) -> list[tuple[Access, str, str]]:
        """Return every access that the request needs, as (access, bucket, key)."""
        if not self.key:
            return [self._bucket_access()]
        if self.method in {"GET", "HEAD"}:
            plain = not self.query.keys() & {"acl", "tagging", "versionId", "retention", "legal-hold", "uploadId"}
            return [(Access.READ if plain else Access.OTHER, self.bucket, self.key)]
        if self.method == "DELETE":
            # Aborting an upload and deleting a version need other permissions, which Polaris does not vend.
            return [(Access.DELETE if self.query.keys() <= {"x-id"} else Access.OTHER, self.bucket, self.key)]
        if self.method in {"PUT", "POST"} and self.query.keys() <= _UPLOADS:
            needed = [(Access.WRITE, self.bucket, self.key)]
            if source := self.headers.get("x-amz-copy-source"):
                bucket, _, key = unquote(source.partition("?")[0]).lstrip("/").partition("/")
                needed.append((Access.READ, bucket, key))
            return needed
        return [(Access.OTHER, self.bucket, self.key)]

    def _bucket_access(self) -> tuple[Access, str, str]:
        if self.method == "GET" and self.bucket:
            if "location" in self.query:
                return Access.LOCATION, self.bucket, ""
            if self.query.keys() <= _LISTING:
                return Access.LIST, self.bucket, self.query.get("prefix", "")
        return Access.OTHER, self.bucket, ""


def identify(request: S3Request, keys: VendedKeys, now: datetime) -> VendedKey | Refusal | None:
    """Return the vended key that signed the request, None for an administrator's key, or a refusal."""
    if request.access_key_id is None:
        return ACCESS_DENIED
    vended = keys.get(request.access_key_id)
    if vended is None:
        return None
    if request.session_token is None:
        return UNKNOWN_KEY
    if not vended.has_token(request.session_token):
        return BAD_TOKEN
    return EXPIRED if vended.expires_at <= now else vended


class MultiDelete:
    """The body of a DeleteObjects request, split into the keys a vended key may delete and those it may not."""

    def __init__(self, body: bytes, bucket: str, vended: VendedKey) -> None:
        """Parse the body; raises ElementTree.ParseError if it is not XML."""
        self._root = ElementTree.fromstring(body)  # noqa: S314 - from programs on this machine, at most 1,000 keys
        self._namespace = self._root.tag.partition("}")[0] + "}" if self._root.tag.startswith("{") else ""
        objects = self._root.findall(f"{self._namespace}Object")
        self.denied = []
        for element in objects:
            key = element.findtext(f"{self._namespace}Key") or ""
            version = element.findtext(f"{self._namespace}VersionId")
            if version or not vended.allows(Access.DELETE, bucket, key):
                self._root.remove(element)
                self.denied.append(key)
        self.any_allowed = len(self.denied) < len(objects)

    def allowed_body(self) -> bytes:
        if self._namespace:
            ElementTree.register_namespace("", self._namespace.strip("{}"))
        body: bytes = ElementTree.tostring(self._root, encoding="utf-8", xml_declaration=True)
        return body

    def answer(self, upstream: bytes | None) -> bytes:
        """Return DeleteResult with AccessDenied for each denied key; `upstream` is the store's result, if any."""
        errors = "".join(
            f"<Error><Key>{escape(key)}</Key><Code>{ACCESS_DENIED.code}</Code>"
            f"<Message>{ACCESS_DENIED.message}</Message></Error>"
            for key in self.denied
        ).encode()
        if upstream is None:
            opening = b'<?xml version="1.0" encoding="UTF-8"?>\n<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            return opening + errors + b"</DeleteResult>"
        head, closing, tail = upstream.rpartition(b"</DeleteResult>")
        if closing:
            return head + errors + closing + tail
        # The store returned an empty element, because it deleted nothing or the request was quiet.
        return self.answer(None)
