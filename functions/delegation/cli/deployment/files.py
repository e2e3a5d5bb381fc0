"""Files that only their owner can read, also while they are written."""

import os
from pathlib import Path

from delegation.cli.errors import CommandError


def write_secret(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Write a file with mode 0600; no reader sees it half written. Raises CommandError if it exists and not
    `replace`."""
    _write(path, content, 0o600, replace=replace)


def write_public(path: Path, content: bytes) -> None:
    """Write a file that everybody may read; no reader sees it half written. Raises CommandError (FILE_NOT_WRITTEN)."""
    _write(path, content, 0o666, replace=True)


def _write(path: Path, content: bytes, mode: int, *, replace: bool) -> None:
    target = path.with_name(f".{path.name}.new") if replace else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if replace:
            target.unlink(missing_ok=True)
        # O_EXCL follows no link and opens no existing file; the mode applies from the first byte.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        if replace:
            target.replace(path)
    except FileExistsError as error:
        raise CommandError(
            f"{path} exists; it was not changed", "Name another file, or remove it first.", code="FILE_NOT_WRITTEN"
        ) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CommandError(
            f"{path} cannot be written: {reason}", "Check the folder and its permissions.", code="FILE_NOT_WRITTEN"
        ) from error
