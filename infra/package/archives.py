"""Archives that have the same bytes for the same content: sorted entries, fixed times, owners and modes."""

import gzip
import tarfile
import zipfile
from pathlib import Path
from typing import Final

_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_FILE_MODE: Final = 0o100644
"""Lambda and Spark read modules and load libraries; neither runs a file."""


def files_below(tree: Path) -> list[tuple[str, Path]]:
    """Return the names and paths of all files, sorted by name."""
    return sorted((path.relative_to(tree).as_posix(), path) for path in tree.rglob("*") if path.is_file())


def write_zip(tree: Path, archive: Path) -> None:
    """Write a directory's content as a zip, for Lambda."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, path in files_below(tree):
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = _UNIX
            entry.external_attr = _FILE_MODE << 16
            file.writestr(entry, path.read_bytes())


def write_tar(tree: Path, archive: Path) -> None:
    """Write a directory's content as a compressed tar, for `spark.archives`."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as file,
    ):
        for name, path in files_below(tree):
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = _FILE_MODE & 0o777
            with path.open("rb") as content:
                file.addfile(entry, content)
