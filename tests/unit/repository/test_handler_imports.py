"""Modules loaded at a cold start: each handler keeps its budget, and loads no package that it does not use."""

import os
import subprocess
import sys

import pytest

from infra.local.processes.programs import import_path

# The most modules of `delegation` per handler; raising a number is a decision about the cold start.
BUDGETS = {
    "authorizer": 20,
    "rotate_secret": 25,
    "probe_front": 9,
    "gateway": 54,
    "dispatcher": 63,
    "notifier": 66,
    "steps": 66,
    "sweeper": 75,
    "api": 87,
    "attempts": 164,
}
UNUSED_BY_ALL = ("polaris_persistence", "delegation.client", "delegation.cli", "pyarrow", "pyspark")
ENGINE = (
    "delegation.iceberg",
    "delegation.storage",
    "delegation.removal.deletes",
    "delegation.removal.purge.run",
)
FORBIDDEN = {
    "authorizer": (*ENGINE, "delegation.tasks", "delegation.polaris", "boto3"),
    "dispatcher": (*ENGINE, "delegation.polaris", "delegation.edge", "delegation.idempotency"),
    "gateway": (
        *ENGINE,
        "delegation.polaris",
        "delegation.removal",
        "delegation.gateway.drop",
        "delegation.orchestration",
    ),
    "rotate_secret": ("delegation.iceberg", "delegation.tasks", "delegation.edge", "delegation.removal"),
    "probe_front": (*ENGINE, "delegation.tasks", "delegation.polaris", "delegation.edge", "httpx"),
    "notifier": (*ENGINE, "delegation.polaris", "delegation.edge", "delegation.idempotency", "httpx"),
    "steps": (*ENGINE, "delegation.polaris", "delegation.edge"),
    "sweeper": (*ENGINE, "delegation.polaris", "delegation.edge"),
    "api": (
        "delegation.iceberg",
        "delegation.removal.deletes",
        "delegation.removal.purge.run",
        "httpx",
        "asyncio",
        "aws_lambda_powertools.event_handler",
        "aws_lambda_powertools.utilities.data_classes",
    ),
    "attempts": ("delegation.edge", "asyncio"),
}


def loaded(module: str) -> frozenset[str]:
    """Return the modules that a new interpreter loads for an import of `module`."""
    code = f"import sys, {module}; print('\\n'.join(sys.modules))"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": import_path(), "AWS_DEFAULT_REGION": "us-east-1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


def below(modules: frozenset[str], packages: tuple[str, ...]) -> set[str]:
    return {one for one in modules if any(one == package or one.startswith(f"{package}.") for package in packages)}


@pytest.mark.parametrize("handler", BUDGETS)
def test_a_handler_keeps_its_import_budget(handler: str) -> None:
    modules = loaded(f"delegation.handlers.{handler}")
    ours = below(modules, ("delegation",))
    assert f"delegation.handlers.{handler}" in ours
    assert len(ours) <= BUDGETS[handler], sorted(ours)
    assert below(modules, (*UNUSED_BY_ALL, *FORBIDDEN[handler])) == set()


def test_settings_load_neither_an_engine_nor_a_client() -> None:
    modules = loaded("delegation.wiring.settings")
    assert below(modules, (*ENGINE, "delegation.polaris", "delegation.edge", "boto3", "httpx")) == set()
