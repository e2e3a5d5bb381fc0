"""Errors of certificates; each names the file or the name, and what to do next."""

from pathlib import Path

from delegation.cli.errors import CommandError


def certificate_unreadable(path: Path, reason: str) -> CommandError:
    """Return the error: a file cannot be used."""
    return CommandError(
        f"{path} cannot be used: {reason}",
        "Restore the file, or make a new authority elsewhere.",
        code="CERTIFICATE_UNREADABLE",
    )
