"""Build the S3 servers and run their tests.

    python -m tests.s3_servers [pytest's arguments]

Exits with pytest's status, and with 77 if Go is missing or a server cannot be built.
"""

import sys
from pathlib import Path

import pytest

from infra.local.errors import UnavailableError
from tests.s3_servers.programs import PROGRAMS

SKIPPED = 77


def main(arguments: list[str]) -> int:
    """Build what is not built yet, print where it is, and run the tests of this folder, the long ones too."""
    try:
        for program in PROGRAMS:
            sys.stdout.write(f"{program.name} {program.version}: {program.build()}\n")
    except UnavailableError as error:
        sys.stdout.write(f"skipped: {error}\n")
        return SKIPPED
    sys.stdout.flush()
    return int(pytest.main(["-q", "-m", "", str(Path(__file__).parent), *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
