"""`spark.archives` of a job as Spark unpacks them: by the end of a file's name, never by its content.

Spark 3.5 and 4, `org.apache.spark.util.Utils.unpack`; tests/integration/local/test_emr_archives.py compares both.
"""

import shutil
import tarfile
import zipfile
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit


class Unpacking(StrEnum):
    """What Spark does with an archive."""

    ZIP = "zip"
    TAR = "tar"
    COPY = "copy"
    """Nothing: the archive's file is where the directory should be ("Cannot unpack …, just copying it to …")."""


_ENDINGS: Final = {
    ".jar": Unpacking.ZIP,
    ".zip": Unpacking.ZIP,
    ".tar.gz": Unpacking.TAR,
    ".tgz": Unpacking.TAR,
    ".tar": Unpacking.TAR,
}


def unpacking(name: str) -> Unpacking:
    """Return what Spark does with an archive of this file name or object key."""
    lower = name.lower()
    return next((how for ending, how in _ENDINGS.items() if lower.endswith(ending)), Unpacking.COPY)


def unpack(archive: Path, target: Path) -> None:
    """Unpack an archive into a new directory, or copy it there as a file, as its name states; raises OSError."""
    match unpacking(archive.name):
        case Unpacking.ZIP:
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(target)  # noqa: S202 - our own archive
        case Unpacking.TAR:
            with tarfile.open(archive) as packed:
                # Python 3.11.2 (Debian 12) has no filters; the archive is our own.
                packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
                packed.extractall(target)  # noqa: S202
        case Unpacking.COPY:
            shutil.copyfile(archive, target)


def parsed(setting: str) -> tuple[tuple[str, str], ...]:
    """Return the URIs of `spark.archives` (separated by commas) with the names of their directories."""
    named = []
    for one in filter(None, setting.split(",")):
        uri, _, alias = one.partition("#")
        named.append((uri, alias or Path(urlsplit(uri).path).name))
    return tuple(named)
