"""The image, the compose file and the manifests of infra/pairing, as far as they can be checked without Docker."""

import contextlib
import json
import re
import threading
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer.main
import yaml

from delegation.cli.main import build
from delegation.cli.worker import _settings, _worker
from delegation.environment import EnvironmentSettings
from delegation.metrics import MetricLines
from infra.pairing.catalog import make_catalog
from tests.paths import ROOT

PAIRING = ROOT / "infra" / "pairing"
COMPOSE = yaml.safe_load((PAIRING / "compose.yaml").read_text())
MANIFESTS = {one["kind"]: one for one in yaml.safe_load_all((PAIRING / "worker.yaml").read_text())}
Stages = dict[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def stages() -> Stages:
    """Each stage's instructions, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", (PAIRING / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: Stages = {}
    for line in filter(None, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found[rest.rpartition(" AS ")[2]] = []
        list(found.values())[-1].append((word, rest))
    return found


def parsed(arguments: list[str]) -> dict[str, Any]:
    """Parse arguments of `delegation` down to the last command, without running it; an unknown option raises."""
    command: Any = typer.main.get_command(build(()))
    context = command.make_context("delegation", list(arguments))
    while hasattr(command, "resolve_command"):
        _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(command.name, rest, parent=context)
    return {"command": context.command_path, **context.params}


def test_every_stage_copies_what_exists_and_installs_extras_that_exist(stages: Stages) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(stages) == {"worker", "stack"}
    for lines in stages.values():
        for _, rest in (line for line in lines if line[0] == "COPY"):
            assert all((ROOT / name).exists() for name in rest.split()[:-1])
        installs = [rest for word, rest in lines if word == "RUN" and "pip install" in rest]
        assert len(installs) == 1
        assert "--constraint constraints.txt" in installs[0]
        named = re.search(r'"\.\[([a-z,]+)\]"', installs[0])
        assert named is not None
        assert set(named[1].split(",")) <= set(extras)


def test_every_stage_runs_a_command_that_exists_as_another_user_than_root(stages: Stages) -> None:
    ends = {}
    for name, lines in stages.items():
        words = dict(lines)
        assert words["USER"] == "10001"
        assert json.loads(words["ENTRYPOINT"]) == ["delegation"]
        ends[name] = parsed(json.loads(words["CMD"]))
    assert ends["worker"]["command"] == "delegation worker"
    assert ends["stack"]["state_dir"] == Path("/state")


def test_the_local_stack_of_the_compose_file_uses_its_polaris_and_its_store() -> None:
    service = COMPOSE["services"]["delegation"]
    given = parsed(service["command"])
    assert given["command"] == "delegation local up"
    assert given["polaris_url"] == "http://127.0.0.1:8181/api/catalog"
    assert given["s3_endpoint"] == "http://" + COMPOSE["services"]["minio"]["command"][-1]
    assert (ROOT / "infra" / "pairing" / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_the_compose_file_holds_no_secret_and_opens_nothing_to_other_machines() -> None:
    for name, service in COMPOSE["services"].items():
        for variable, value in service.get("environment", {}).items():
            if "SECRET" in variable or "PASSWORD" in variable or "CREDENTIALS" in variable:
                assert re.search(r"\$\{[A-Z0-9_]+:\?", value), (name, variable)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert service.get("network_mode", "service:polaris") == "service:polaris"


def test_the_workers_variables_are_exactly_ones_that_a_worker_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    plain = EnvironmentSettings.read.__func__  # type: ignore[attr-defined]

    def recording(cls: type[EnvironmentSettings]) -> EnvironmentSettings:
        read.update(field.alias for field in cls.model_fields.values() if field.alias)
        return plain(cls)

    monkeypatch.setattr(EnvironmentSettings, "read", classmethod(recording))
    given = MANIFESTS["ConfigMap"]["data"]
    for name, value in {**given, "AWS_DEFAULT_REGION": given["AWS_REGION"]}.items():
        monkeypatch.setenv(name, value)
    with contextlib.ExitStack() as until_the_end:
        _worker(_settings(None, "5s"), threading.Event(), until_the_end, added_only=False, spark=None)
    MetricLines.of_environment()
    assert set(given) - {"AWS_REGION"} <= read


def test_the_workers_pod_is_confined_and_refers_to_its_settings() -> None:
    pod = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]
    assert container["envFrom"] == [{"configMapRef": {"name": MANIFESTS["ConfigMap"]["metadata"]["name"]}}]
    assert pod["serviceAccountName"] == MANIFESTS["ServiceAccount"]["metadata"]["name"]
    assert parsed(container["args"])["command"] == "delegation worker"
    assert pod["terminationGracePeriodSeconds"] >= 60
    assert not [name for name in container if name.endswith("Probe")]
    assert not [name for name in MANIFESTS["ConfigMap"]["data"] if "SECRET" in name and not name.endswith("_ARN")]


@pytest.mark.parametrize(("status", "said"), [(201, "made"), (409, "there already")])
def test_the_catalog_is_made_once_and_its_content_granted(status: int, said: str) -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(f"{request.method} {request.url.path}")
        if request.url.path.endswith("tokens"):
            return httpx.Response(200, json={"access_token": "t"})
        return httpx.Response(status if request.method == "POST" else 201)

    with httpx.Client(base_url="http://polaris/api", transport=httpx.MockTransport(answer)) as client:
        assert make_catalog(client, "secret") == said
    assert seen == [
        "POST /api/catalog/v1/oauth/tokens",
        "POST /api/management/v1/catalogs",
        "PUT /api/management/v1/catalogs/lake/catalog-roles/catalog_admin/grants",
    ]
