"""Payloads as JSON text: RFC 8785's vectors, 64-bit ids, generated documents, requests with real LoadTableResults."""

import gzip
import json
import random
import struct
import tarfile
from collections.abc import Iterator
from typing import Any, Final

from tests.paths import ROOT
from tests.unit.idempotency.test_canonical import NUMBERS

TABLES: Final = ROOT / "tests" / "fixtures" / "tables"
EXAMPLES: Final = {
    "section 3.2.2": (
        '{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],'
        '"string": "\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/",'
        '"literals": [null, true, false]}'
    ),
    "section 3.2.3": (
        '{"\\u20ac": "Euro Sign", "\\r": "Carriage Return", "\\ufb33": "Hebrew Letter Dalet With Dagesh",'
        '"1": "One", "\\ud83d\\ude00": "Emoji: Grinning Face", "\\u0080": "Control",'
        '"\\u00f6": "Latin Small Letter O With Diaeresis"}'
    ),
    "empty": '{"a":{},"b":[],"":""}',
    "integral": '{"a":[-0,0,-0.0,0e5,1.0,100,1e2,1E+2,123456789012345678901234567890.0,1e21,-1e-7]}',
}
"""RFC 8785, Sections 3.2.2 and 3.2.3, and numbers written in other ways."""
_GZIP: Final = b"\x1f\x8b"
_EDGES: Final = (2**31, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**25)


def cases() -> Iterator[tuple[str, str]]:
    """Yield a name and a JSON object's text for each case; the same ones every time."""
    yield from generated()
    yield from _requests()


def generated() -> Iterator[tuple[str, str]]:
    """Yield the cases without those of real tables."""
    for bits in NUMBERS:
        value = struct.unpack(">d", bytes.fromhex(bits))[0]
        yield f"RFC 8785 Appendix B {bits}", f'{{"n":{value!r}}}'
    for name, text in EXAMPLES.items():
        yield f"RFC 8785 {name}", text
    for edge in _EDGES:
        yield (
            f"integers around {edge}",
            json.dumps({"ids": [sign * (edge + d) for sign in (1, -1) for d in (-1, 0, 1)]}),
        )
    draw = random.Random(8785)
    for number in range(200):
        yield f"snapshot ids {number}", json.dumps({"snapshot-ids": [draw.getrandbits(63) for _ in range(5)]})
    for number in range(500):
        yield f"generated {number}", json.dumps({"value": _value(draw, 4)}, ensure_ascii=draw.random() < 0.5)


def _value(draw: random.Random, depth: int) -> Any:
    kind = draw.randrange(8 if depth else 6)
    if kind == 0:
        return draw.choice([None, True, False])
    if kind == 1:
        return draw.choice([draw.getrandbits(16), draw.getrandbits(63), -draw.getrandbits(80)])
    if kind in {2, 3}:
        return _double(draw)
    if kind in {4, 5}:
        return _text(draw)
    if kind == 6:
        return [_value(draw, depth - 1) for _ in range(draw.randrange(4))]
    return {_text(draw): _value(draw, depth - 1) for _ in range(draw.randrange(4))}


def _double(draw: random.Random) -> float:
    while True:
        value: float = struct.unpack(">d", draw.randbytes(8))[0]
        if value - value == 0:  # neither infinite nor NaN
            return draw.choice([value, round(draw.uniform(-1e6, 1e6), 3)])


def _text(draw: random.Random) -> str:
    kinds = ((0x20, 0x7E), (0, 0x1F), (0x7F, 0x7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))
    return "".join(chr(draw.randint(*draw.choice(kinds))) for _ in range(draw.randrange(6)))


def _requests() -> Iterator[tuple[str, str]]:
    """Yield a request for every metadata file that Spark wrote for the fixtures, as Polaris would send it."""
    for archive in sorted(TABLES.glob("*.tar.xz")):
        with tarfile.open(archive) as files:
            for member in files:
                if member.name.endswith(".metadata.json"):
                    found = files.extractfile(member)
                    assert found is not None
                    raw = found.read()
                    text = gzip.decompress(raw) if raw[:2] == _GZIP else raw
                    yield f"{archive.stem} {member.name}", _request(text.decode(), member.name)


def _request(metadata: str, location: str) -> str:
    """The metadata's own text stays as it is: only so are its numbers the writer's."""
    common = '{"operation_type":"TABLE_PURGE","realm_identifier":"POLARIS"}'
    identity = '{"catalog_name":"lake","namespace_levels":["ns"],"table_name":"t"}'
    return (
        f'{{"common_payload":{common},"operation_parameters":{{"table_identity":{identity},'
        f'"metadata-location":{json.dumps(location)},"metadata":{metadata},'
        '"config":{"s3.session-token":"vended"},"storage-credentials":[{"prefix":"s3://","config":{"n":9007199254740993}}]}}'
    )
