"""Searches for secrets by value in everything that a system stores or logs, also encoded, compressed or truncated."""

import base64
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

import zstandard

FRAGMENT = 24
"""The length of the three pieces by which a truncated secret is found."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PATTERNS = {
    "a JSON web token": re.compile(rb"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
    "a bearer token": re.compile(rb"[Bb]earer [\w.~+/-]{20,}"),
    "a temporary access key id": re.compile(rb"\bASIA[A-Z0-9]{16}\b"),
}


@dataclass(frozen=True, slots=True)
class Trace:
    """Something that a person or a process can read, at `place`."""

    place: str
    content: bytes = field(repr=False)


class SecretSearch:
    """A search for known secrets; `hits` returns places, never the secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        secrets = sorted(set(secrets))
        assert secrets
        assert all(len(secret) >= 16 for secret in secrets), "too short to be distinguished from a coincidence"
        self._pattern = re.compile(any_of({form.encode() for secret in secrets for form in _forms(secret)}))

    def hits(self, found: Iterable[Trace]) -> list[str]:
        """Return the places of secrets, of pieces of them, and of everything with the form of a secret."""
        return [hit for each in found for hit in self._hits(each)]

    def _hits(self, found: Trace) -> Iterator[str]:
        for content in (found.place.encode(), *layers(found.content)):
            if match := self._pattern.search(content):
                yield f"{found.place}: a known secret at byte {match.start()}"
            for kind, pattern in _PATTERNS.items():
                if match := pattern.search(content):
                    yield f"{found.place}: {kind} at byte {match.start()}"


def any_of(words: Iterable[bytes]) -> bytes:
    """Return the regular expression of a trie: the thousands of forms side by side would all be tried at each byte."""
    following: dict[bytes, set[bytes]] = {}
    for word in words:
        following.setdefault(word[:1], set()).add(word[1:])
    branches = [_branch(one, rest) for one, rest in sorted(following.items())]
    return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"


def _branch(first: bytes, rest: set[bytes]) -> bytes:
    if b"" in rest:
        return re.escape(first)
    # Characters, not components of a path: this is what the function does, whatever its module.
    shared = os.path.commonprefix([min(rest), max(rest)])  # noqa: RUF071
    tails = {one[len(shared) :] for one in rest}
    return re.escape(first + shared) + (b"" if b"" in tails else any_of(tails))


def layers(content: bytes) -> Iterator[bytes]:
    """Yield the content and, if it is compressed, its decompressed content."""
    yield content
    try:
        if content.startswith(_GZIP):
            yield from layers(zlib.decompress(content, wbits=31))
        elif content.startswith(_ZSTD):
            yield from layers(zstandard.ZstdDecompressor().decompressobj().decompress(content))
    except (zlib.error, zstandard.ZstdError):
        return


def _forms(secret: str) -> Iterator[str]:
    """Yield the encodings of the secret and its pieces; base64 at each of its three alignments."""
    for piece in _pieces(secret):
        yield from (piece, json.dumps(piece)[1:-1], quote(piece, safe=""), quote_plus(piece))
    for ahead in range(3):
        encoded = base64.b64encode(b"\0" * ahead + secret.encode()).decode()
        # The first and the last group also depend on the bytes next to the secret.
        inner = encoded[4 if ahead else 0 : len(secret) // 3 * 4 - 4]
        yield from (inner, inner.translate(str.maketrans("+/", "-_")))


def _pieces(secret: str) -> Sequence[str]:
    if len(secret) <= FRAGMENT:
        return (secret,)
    middle = (len(secret) - FRAGMENT) // 2
    return (secret[:FRAGMENT], secret[middle : middle + FRAGMENT], secret[-FRAGMENT:])
