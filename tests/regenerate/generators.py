"""Everything in this repository that a program writes: pages, tables in pages, schemas and recordings."""

import importlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from tests.paths import ROOT


class When(Enum):
    """When a generator runs: at each `make regenerate`, with `--all` only, or by hand only."""

    ALWAYS = "make regenerate"
    ALL = "make regenerate ARGS=--all"
    RELEASE = "by hand, at a release or when a screen changes"


@dataclass(frozen=True, slots=True)
class Generator:
    """A module that writes files when it is run, and the files as patterns.

    A module with a function `files()` returns what it would write, by path; `compared_by` names the tests that compare
    the files of any other module, which are recordings of what the code does.
    """

    module: str
    writes: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    when: When = When.ALWAYS
    needs: str = ""
    compared_by: str | None = None

    @property
    def command(self) -> str:
        """How a person runs this one alone."""
        module = "tests.regenerate " + self.module if self.compared_by is None else self.module
        return " ".join(("PYTHONPATH=functions:. python -m", module, *self.arguments))


GENERATORS: Final = (
    Generator("infra.api_schemas", ("docs/openapi.yaml",)),
    Generator("tests.conformance.differences", ("docs/extensions.md",)),
    Generator("infra.settings_page", ("docs/settings.md", "functions/delegation/cli/deployment/service.json")),
    Generator("infra.error_page", ("docs/errors.md",)),
    Generator("infra.command_page", ("docs/command.md",)),
    Generator("infra.operations.metrics_page", ("docs/metrics.md",)),
    Generator("infra.costs_page", ("docs/costs.md",)),
    Generator("tests.bench.records.page", ("docs/performance.svg",)),
    Generator("tests.golden.record", ("tests/golden/recorded/**",), compared_by="tests/golden"),
    Generator("tests.counts", ("tests/counts/recorded.json",), ("--record",), compared_by="tests/counts"),
    Generator(
        "tests.canonical",
        ("tests/canonical/recorded.json",),
        ("--record",),
        when=When.ALL,
        needs="Node and npm",
        compared_by="tests/canonical",
    ),
    Generator(
        "tests.persistence.applier.fuzz",
        ("tests/persistence/applier/recorded.jsonl.xz",),
        ("--sequences", "300", "--seed", "900000", "--record", "tests/persistence/applier/recorded.jsonl.xz"),
        when=When.ALL,
        needs="Java 17 and Maven",
        compared_by="tests/persistence/iceberg/test_recorded.py",
    ),
    Generator(
        "tests.expiry.fuzz",
        ("tests/expiry/recorded.jsonl.xz",),
        ("--sequences", "400", "--seed", "900000", "--record", "tests/expiry/recorded.jsonl.xz"),
        when=When.ALL,
        needs="Java 17 and Maven",
        compared_by="tests/unit/removal/expiry/test_recorded.py",
    ),
    Generator(
        "tests.expiry.action",
        ("tests/expiry/action/recorded.jsonl.xz",),
        ("--record",),
        when=When.ALL,
        needs="Java 17, and Spark with Iceberg",
        compared_by="tests/unit/removal/expiry/oracle/test_action.py",
    ),
    Generator(
        "tests.orphans",
        ("tests/orphans/recorded.jsonl.xz",),
        ("--record",),
        when=When.ALL,
        needs="Java 17, and Spark with Iceberg",
        compared_by="tests/unit/removal/orphans/oracle/test_action.py",
    ),
    Generator(
        "tests.fixtures.write",
        ("tests/fixtures/tables/**",),
        when=When.ALL,
        needs="Java 17, and Spark with Iceberg",
        compared_by="tests/unit/iceberg",
    ),
    Generator(
        "tests.infra.deploying.table",
        ("tests/infra/deploying/changes.txt",),
        when=When.ALL,
        needs="Node, ten minutes",
        compared_by="tests/infra/deploying",
    ),
    Generator(
        "tests.infra.security.record",
        ("tests/infra/security/recorded/**",),
        when=When.ALL,
        needs="Java 17, ten minutes",
        compared_by="tests/infra/security",
    ),
    Generator(
        "infra.site.pictures",
        ("docs/images/*",),
        (".local/stack.json",),
        when=When.RELEASE,
        needs="a local stack with tables, and Chromium",
        compared_by="tests/unit/docs",
    ),
    Generator(
        "tests.infra.deploying.templates",
        ("tests/infra/deploying/former.json",),
        when=When.RELEASE,
        compared_by="tests/infra/deploying",
    ),
    Generator(
        "tests.persistence.releases.record",
        ("tests/fixtures/persistence/*.json",),
        when=When.RELEASE,
        needs="the last release's checkout; the module's text has the steps",
        compared_by="tests/persistence/releases",
    ),
    Generator(
        "tests.persistence.releases.record_packed",
        ("tests/fixtures/persistence/*.json",),
        when=When.RELEASE,
        needs="the last release's checkout; the module's text has the steps",
        compared_by="tests/persistence/releases",
    ),
)
"""In the order in which they run: docs/extensions.md is made from docs/openapi.yaml."""


def made(generator: Generator) -> Mapping[Path, str]:
    """Return what a generator with a function `files` would write, by path."""
    found: Mapping[Path, str] = importlib.import_module(generator.module).files()
    return found


def stale(generator: Generator) -> list[str]:
    """Return the files that are not as the generator would write them."""
    return [
        str(path.relative_to(ROOT))
        for path, text in made(generator).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def written(generator: Generator) -> dict[Path, bytes]:
    """Return the files of a generator as they are now."""
    return {path: path.read_bytes() for each in generator.writes for path in sorted(ROOT.glob(each)) if path.is_file()}


def run(generator: Generator) -> list[str]:
    """Run a generator and return the files that it changed; raises CalledProcessError if it fails."""
    before = written(generator)
    if generator.compared_by is None:
        for path, text in made(generator).items():
            path.write_text(text, encoding="utf-8")
        return _changed(before, written(generator))
    command = [sys.executable, "-m", generator.module, *generator.arguments]
    # The counts depend on the order of sets.
    environment = {"PYTHONHASHSEED": "0", "PYTHONPATH": "functions:."}
    subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL)
    return _changed(before, written(generator))


def _changed(before: Mapping[Path, bytes], after: Mapping[Path, bytes]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
