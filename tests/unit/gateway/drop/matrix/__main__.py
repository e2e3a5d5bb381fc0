"""The whole matrix of a drop's faults, or a part of it, on the stand-in and on a real Polaris.

    python -m tests.unit.gateway.drop.matrix [--part N/M] [--on memory|http|polaris]

Without `--on` it runs on the stand-in in this process, then on the Polaris that POLARIS_URL, POLARIS_CREDENTIAL
(`id:secret` of `root`) and POLARIS_WAREHOUSE name, if they are set. POLARIS_S3_ENDPOINT is its store unless that is
AWS's, and the AWS variables have keys that list and write it. `http` is the stand-in as a server. Every cell has
namespaces of its own in a server; their names begin with `conf_`, and they are removed.
"""

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Final

from tests.contract.polaris.world import real, stand_in
from tests.kit.explorer import play_all
from tests.kit.printing import print_now
from tests.unit.gateway.drop.deployment import Deployment
from tests.unit.gateway.drop.matrix.cells import Case, cases, violations
from tests.unit.gateway.drop.matrix.served import served
from tests.unit.gateway.drop.world import DropWorld

_MEMORY, _HTTP, _POLARIS = ON = ("memory", "http", "polaris")
_NEEDED: Final = "--on polaris needs a server: set POLARIS_URL, POLARIS_CREDENTIAL and POLARIS_WAREHOUSE"


@contextlib.contextmanager
def worlds(on: str) -> Iterator[Callable[[], Deployment]]:
    """Yield what makes a deployment on one of the catalogs."""
    if on == _MEMORY:
        yield DropWorld
        return
    polaris = real() if on == _POLARIS else None
    if on == _POLARIS and polaris is None:
        raise SystemExit(_NEEDED)
    with contextlib.nullcontext(polaris) if polaris is not None else stand_in() as server, served(server) as found:
        yield found.world


def play(on: str, part: int, parts: int) -> int:
    """Play the cells on a catalog; return how many are wrong."""
    with worlds(on) as world:

        def cell(case: Case) -> tuple[str, list[str]]:
            return f"{case.permitted}, {case.recreated}", violations(case, world)

        return len(play_all(on, cases(part, parts, world=world), cell).wrong)


def main() -> int:
    """Run the matrix; return 1 if a cell is wrong."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--part", default="1/1", metavar="N/M", help="every M-th cell, from the N-th")
    options.add_argument(
        "--on", choices=ON, help="one catalog: in this process, the stand-in over HTTP, or POLARIS_URL's"
    )
    given = options.parse_args()
    logging.disable(logging.WARNING)
    part, _, parts = given.part.partition("/")
    chosen = [given.on] if given.on else [_MEMORY, *([_POLARIS] if real() is not None else [])]
    if chosen == [_MEMORY] and not given.on:
        print_now("no real Polaris: POLARIS_URL, POLARIS_CREDENTIAL and POLARIS_WAREHOUSE are not set")
    return 1 if sum([play(on, int(part), int(parts)) for on in chosen]) else 0


if __name__ == "__main__":
    sys.exit(main())
