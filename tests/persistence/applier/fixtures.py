"""The metadata documents of the fixtures that Spark and Iceberg wrote (tests/fixtures/tables)."""

import gzip
import json
import tarfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from tests.paths import ROOT


def spark_metadata() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the documents with their locations, each different content once."""
    seen: set[bytes] = set()
    for path in sorted((ROOT / "tests" / "fixtures" / "tables").glob("*.tar.xz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if ".metadata.json" not in member.name:
                    continue
                file = archive.extractfile(member)
                data = b"" if file is None else file.read()
                data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
                if data in seen:
                    continue
                seen.add(data)
                yield unquote(member.name.removeprefix("objects/")), json.loads(data)
