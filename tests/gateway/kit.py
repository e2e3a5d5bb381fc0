"""Iceberg's REST compatibility kit against Iceberg's own REST server, once direct and once through the gateway.

    python -m tests.gateway.kit [--only CLASS#METHOD] [--by-rule] [--least 140]

Every test must have the same outcome on both ways, and at least `--least` must pass. Every request leads through the
gateway, which forwards it; with `--by-rule` only those that the rule selects do. Exits with 1 otherwise, and with 77
if Java 17 or Maven is missing.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

from infra.local.aws.dynamodb import java
from infra.local.errors import UnavailableError
from tests.gateway.servers import gateway_before, iceberg_server, jars

SUITE = "org.apache.iceberg.rest.RESTCompatibilityKitSuite"
SKIPPED = 77
_KIT_SECONDS = 1500


def main() -> int:
    """Run the kit twice, print the totals and the differences."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--only", help="one test method")
    options.add_argument("--by-rule", action="store_true")
    options.add_argument("--least", type=int, default=140)
    given = options.parse_args()
    least = 1 if given.only else given.least
    try:
        with tempfile.TemporaryDirectory() as folder:
            direct = outcomes(Path(folder) / "direct", given.only)
            through = outcomes(Path(folder) / "through", given.only, by_gateway=True, takes_all=not given.by_rule)
    except UnavailableError as error:
        print(f"skipped: {error}")  # noqa: T201
        return SKIPPED
    return report(direct, through, least)


def outcomes(folder: Path, only: str | None, *, by_gateway: bool = False, takes_all: bool = True) -> dict[str, str]:
    """Run the kit against a new server; return each test's outcome: passed, failed or aborted."""
    folder.mkdir()
    with ExitStack() as running:
        url = running.enter_context(iceberg_server(folder / "server"))
        if by_gateway:
            url = running.enter_context(gateway_before(url, folder / "gateway", takes_all=takes_all))
        run_kit(url, folder, only)
    if by_gateway:
        print(f"requests to the gateway: {(folder / 'gateway' / 'events').read_text()}")  # noqa: T201
    found = {}
    for file in (folder / "reports").glob("*.xml"):
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
            found[name] = outcome(case)
    return found


def outcome(case: ElementTree.Element) -> str:
    """Return how a test of a JUnit report ended."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "aborted"


def run_kit(url: str, folder: Path, only: str | None) -> None:
    """Run the tests with the JUnit console; its exit status is 1 if a test failed."""
    selected = [f"--select-method={only}"] if only else [f"--select-class={SUITE}"]
    command = [
        java(),
        "-Xmx1g",
        "-XX:+UseSerialGC",
        "-Drck.local=false",
        f"-Duri={url}",
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


def report(direct: dict[str, str], through: dict[str, str], least: int) -> int:
    """Print totals and differences; return 0 if there is no difference and enough tests pass."""
    different = {
        name: (direct.get(name, "absent"), through.get(name, "absent"))
        for name in sorted(direct.keys() | through.keys())
        if direct.get(name) != through.get(name)
    }
    for way, found in (("direct", direct), ("through the gateway", through)):
        totals = Counter(found.values())
        print(f"{way}: {len(found)} tests, " + ", ".join(f"{totals[each]} {each}" for each in sorted(totals)))  # noqa: T201
    for name, (before, after) in different.items():
        print(f"different: {name}: {before} direct, {after} through the gateway")  # noqa: T201
    passed = Counter(through.values())["passed"]
    good = not different and passed >= least
    print(f"{'same outcomes' if not different else 'DIFFERENT outcomes'}; {passed} passed, at least {least} must")  # noqa: T201
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
