"""Errors of certificates; each names the file or the name, and what to do next."""

from pathlib import Path

from delegation.cli.errors import CommandError


class AuthorityExists(CommandError):
    """The folder has an authority, which a new one would replace."""

    code = "AUTHORITY_EXISTS"

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} has a certificate authority; it was not changed", "Name another folder with --dir.")


class AuthorityMissing(CommandError):
    """The folder has no authority."""

    code = "AUTHORITY_MISSING"

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} has no certificate authority", "Make one with `delegation certs init`.")


class CertificateUnknown(CommandError):
    """The folder has no certificate with this name or serial number."""

    code = "CERTIFICATE_UNKNOWN"

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(
            f"{folder} has no certificate {name}", "`delegation certs show` lists names and serial numbers."
        )


class CertificateUnreadable(CommandError):
    """A file cannot be used."""

    code = "CERTIFICATE_UNREADABLE"

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be used: {reason}", "Restore the file, or make a new authority elsewhere.")
