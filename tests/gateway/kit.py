"""Iceberg's REST compatibility kit, twice: every test must have the same outcome.

Against Iceberg's own REST server, direct and through the gateway; or with `--on states` against the stand-in of
Polaris, once in memory and once in the persistence.

    python -m tests.gateway.kit [--only CLASS#METHOD] [--by-rule] [--least 140] [--on states]

At least `--least` must pass. Every request leads through the gateway, which forwards it; with `--by-rule` only those
that the rule selects do. Exits with 1 otherwise, and with 77 if Java 17 or Maven is missing. On the stand-in 29 tests
fail: they have locations `file:`, names with slashes, and messages of Iceberg's server where Polaris has others.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from xml.etree import ElementTree

from infra.local.aws.dynamodb import java
from infra.local.errors import UnavailableError
from tests.gateway.servers import CatalogUnderTest, gateway_before, iceberg_server, jars, stand_in

SUITE = "org.apache.iceberg.rest.RESTCompatibilityKitSuite"
SKIPPED = 77
THROUGH = "through the gateway"
STATES = ("memory", "persistence")
WAYS = {"gateway": ("direct", THROUGH), "states": STATES}
LEAST = {"gateway": 140, "states": 112}
_KIT_SECONDS = 1500
_AS_POLARIS = ("-Drck.requires-namespace-create=true", "-Dheader.X-Iceberg-Access-Delegation=vended-credentials")


def main() -> int:
    """Run the kit twice, print the totals and the differences."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--only", help="one test method")
    options.add_argument("--by-rule", action="store_true")
    options.add_argument("--least", type=int)
    options.add_argument("--on", choices=WAYS, default="gateway")
    given = options.parse_args()
    least = 1 if given.only else given.least or LEAST[given.on]
    try:
        with tempfile.TemporaryDirectory() as folder:
            first, second = (
                outcomes(Path(folder) / str(number), given.only, way, takes_all=not given.by_rule)
                for number, way in enumerate(WAYS[given.on])
            )
    except UnavailableError as error:
        print(f"skipped: {error}")  # noqa: T201
        return SKIPPED
    return report(first, second, least, WAYS[given.on])


def outcomes(folder: Path, only: str | None, way: str, *, takes_all: bool = True) -> dict[str, str]:
    """Run the kit against a new server; return each test's outcome: passed, failed or aborted."""
    folder.mkdir()
    with served(folder, way, takes_all=takes_all) as catalog:
        run_kit(catalog, folder, only)
    if way == THROUGH:
        print(f"requests to the gateway: {(folder / 'gateway' / 'events').read_text()}")  # noqa: T201
    found = {}
    for file in (folder / "reports").glob("*.xml"):
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
            found[name] = outcome(case)
    return found


@contextmanager
def served(folder: Path, way: str, *, takes_all: bool = True) -> Iterator[CatalogUnderTest]:
    """Run what a way of WAYS names."""
    if way in STATES:
        with stand_in(folder / "server", way) as catalog:
            yield catalog
        return
    with ExitStack() as running:
        url = running.enter_context(iceberg_server(folder / "server"))
        if way == THROUGH:
            url = running.enter_context(gateway_before(url, folder / "gateway", takes_all=takes_all))
        yield CatalogUnderTest(url)


def outcome(case: ElementTree.Element) -> str:
    """Return how a test of a JUnit report ended."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "aborted"


def run_kit(catalog: CatalogUnderTest, folder: Path, only: str | None) -> None:
    """Run the tests with the JUnit console; its exit status is 1 if a test failed."""
    selected = [f"--select-method={only}"] if only else [f"--select-class={SUITE}"]
    command = [
        java(),
        "-Xmx1g",
        "-XX:+UseSerialGC",
        "-Drck.local=false",
        f"-Duri={catalog.url}",
        *(f"-D{name}={value}" for name, value in catalog.properties.items()),
        *(_AS_POLARIS if catalog.properties else ()),
        "-cp",
        f"{jars()}/*",
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        *selected,
        "--details=none",
        "--disable-banner",
        f"--reports-dir={folder / 'reports'}",
    ]
    with (folder / "kit.log").open("wb") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=_KIT_SECONDS)
    if done.returncode not in {0, 1}:
        sys.stderr.write((folder / "kit.log").read_text(errors="replace")[-2000:])
        raise SystemExit(f"the kit ended with status {done.returncode}")


def report(first: dict[str, str], second: dict[str, str], least: int, ways: tuple[str, str]) -> int:
    """Print totals and differences; return 0 if there is no difference and enough tests pass."""
    different = {
        name: (first.get(name, "absent"), second.get(name, "absent"))
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    }
    for way, found in zip(ways, (first, second), strict=True):
        totals = Counter(found.values())
        print(f"{way}: {len(found)} tests, " + ", ".join(f"{totals[each]} {each}" for each in sorted(totals)))  # noqa: T201
    for name, (before, after) in different.items():
        print(f"different: {name}: {before} {ways[0]}, {after} {ways[1]}")  # noqa: T201
    passed = Counter(second.values())["passed"]
    good = not different and passed >= least
    print(f"{'same outcomes' if not different else 'DIFFERENT outcomes'}; {passed} passed, at least {least} must")  # noqa: T201
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
