"""`make demo` and `make up` install what the stack needs, and nothing that only tests and deployments need."""

import subprocess
import sys

from infra.local.processes.programs import import_path
from tests.paths import ROOT

MISSING = {
    *("aws_cdk", "cdk_nag", "constructs", "jsii"),
    *("fastavro", "hypothesis", "importlinter", "mypy", "openapi_spec_validator", "pytest", "sqlalchemy", "xdist"),
}
"""Modules of the extras `infra` and `dev`, which `make venv` installs besides."""
IMPORTED = f"""
import pkgutil, sys
for name in {sorted(MISSING)!r}:
    sys.modules[name] = None  # an import of it fails
import delegation.cli.main, infra.local, infra.local.demo.__main__ as demo
found = [one.name for one in pkgutil.walk_packages(infra.local.__path__, "infra.local.") if "__main__" not in one.name]
for name in found:
    __import__(name)
print(len(found), demo.main.__name__)
"""


def test_the_local_stack_and_the_demo_import_nothing_of_the_extras_that_they_do_not_install() -> None:
    command, env = [sys.executable, "-c", IMPORTED], {"PATH": "/usr/bin:/bin", "PYTHONPATH": import_path()}
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    number, entry = done.stdout.split()
    assert (int(number) > 40, entry) == (True, "main")


def test_the_demo_waits_for_these_extras_alone() -> None:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    assert "RUN_EXTRAS := service,persistence,cli,spark,local" in lines
    targets = {line.partition(":")[0]: line for line in lines if line.startswith(("demo:", "up:"))}
    assert [("$(RUN_STAMP)" in line, "$(STAMP)" in line) for line in targets.values()] == [(True, False)] * 2
