"""The search for secrets finds planted ones and nothing else."""

import base64
import gzip
import json
import re
from urllib.parse import quote

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from tests.integration.acceptance.secret_search import SecretSearch, Trace, any_of

SECRET = 'q7/Zp+"r9Lk2Vx0/Wb4+Nc8Hd1Jf6Tg3Ys5Ma=='
OTHER = "another-secret-that-is-nowhere"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwb2xhcmlzIn0.c2lnbmF0dXJl"


def basic(secret):
    return base64.b64encode(f"service:{secret}".encode()).decode()


@pytest.mark.parametrize(
    "line",
    [
        f"loaded with {SECRET}",
        json.dumps({"s3.secret-access-key": SECRET}),
        json.dumps(json.dumps({"inner": SECRET[-24:]})),
        f"GET /lake?token={quote(SECRET, safe='')}",
        f"Authorization: Basic {basic(SECRET)}",
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(b"x" + SECRET.encode() + b"yz").decode(),
        f"key {SECRET[:30]}… (truncated)",
        f"Authorization: Bearer {TOKEN}",
        f"an unknown token: {TOKEN}",
        "an unknown key id: ASIA0123456789ABCDEF",
    ],
)
def test_a_secret_planted_in_a_log_is_found(tmp_path, line):
    log = tmp_path / "api.log"
    log.write_text(f'{{"level": "INFO", "message": "step"}}\n{line}\n')
    hits = SecretSearch([OTHER, SECRET]).hits([Trace("api.log", log.read_bytes())])
    assert hits
    assert all(hit.startswith("api.log: ") for hit in hits)
    assert SECRET[:24] not in str(hits)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress, lambda raw: gzip.compress(gzip.compress(raw))])
def test_a_secret_is_found_in_compressed_content(compress):
    assert SecretSearch([SECRET]).hits([Trace("plan", compress(f"path {SECRET}".encode()))])


def test_a_secret_is_found_in_a_name():
    assert SecretSearch([SECRET]).hits([Trace(f"s3://lake/{SECRET}", b"")])


def test_ordinary_lines_are_no_secrets():
    line = b'{"task_id": "2b4e4a1c-7a0e-5a3e-9a53-0c1b0a5f4a11", "access-key-id": "local", "auth": "Bearer **"}'
    assert SecretSearch([SECRET, OTHER]).hits([Trace("api.log", line), Trace("broken.gz", b"\x1f\x8bnothing")]) == []


def test_a_search_without_secrets_or_for_a_short_one_is_refused():
    with pytest.raises(AssertionError):
        SecretSearch([])
    with pytest.raises(AssertionError, match="too short"):
        SecretSearch(["local"])


@given(words=st.sets(st.binary(min_size=1, max_size=6), min_size=1, max_size=12), text=st.binary(max_size=40))
@example(words={b"x" * 5_000 + b"a", b"x" * 5_000 + b"b", b"y" * 3_000}, text=b"y" * 3_001)
def test_the_trie_finds_what_its_words_find_side_by_side(words: set[bytes], text: bytes) -> None:
    found = re.search(any_of(words), text, re.DOTALL)
    starts = [text.find(word) for word in words if word in text]
    assert (None if found is None else found.start()) == (min(starts) if starts else None)
