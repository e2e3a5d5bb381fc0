"""The chart renders what infra/pairing/worker.yaml says; helm is needed for that (`make chart-check` builds it)."""

import copy
import json
from typing import Any

import jsonschema
import pytest
import yaml

from infra.local.errors import UnavailableError
from tests.infra.pairing import chart
from tests.infra.pairing.chart import CHART, PLAIN, by_kind, rendered, values

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
PLAIN_MANIFESTS = by_kind(PLAIN.read_text(encoding="utf-8"))
INSTANCE, CHECKSUM = "app.kubernetes.io/instance", "checksum/settings"


@pytest.fixture(scope="module")
def helm() -> str:
    try:
        return chart.helm()
    except UnavailableError:
        pytest.skip("helm is not installed: `make chart-check` builds it with Go")


def merged(given: dict[str, Any]) -> dict[str, Any]:
    """Return the chart's values with given ones over them."""
    whole = copy.deepcopy(DEFAULTS)
    for name, value in given.items():
        whole[name] = {**whole[name], **value} if isinstance(whole[name], dict) else value
    return whole


def without_additions(manifests: chart.Manifests) -> chart.Manifests:
    """Remove what only the chart has: the release among the labels, and the settings' checksum; each must be there."""
    found = copy.deepcopy(manifests)
    deployment = found["Deployment"]
    pod = deployment["spec"]["template"]["metadata"]
    for labels in (deployment["metadata"]["labels"], deployment["spec"]["selector"]["matchLabels"], pod["labels"]):
        assert labels.pop(INSTANCE) == chart.RELEASE
    assert len(pod.pop("annotations").pop(CHECKSUM)) == 64
    return found


def test_the_chart_renders_the_plain_manifests(helm: str) -> None:
    done = rendered(values())
    assert done.returncode == 0, done.stderr
    assert without_additions(by_kind(done.stdout)) == PLAIN_MANIFESTS


def test_a_changed_setting_replaces_the_pods(helm: str) -> None:
    def checksum(**settings: str) -> str:
        given = values()
        found = by_kind(rendered({**given, "settings": {**given["settings"], **settings}}).stdout)
        return str(found["Deployment"]["spec"]["template"]["metadata"]["annotations"][CHECKSUM])

    assert checksum() == checksum()
    assert checksum() != checksum(DELEGATION_REALM="OTHER")


def test_helm_itself_names_what_is_not_given(helm: str) -> None:
    done = rendered({})
    assert done.returncode != 0
    assert "roleArn" in done.stderr
    assert "DELEGATION_TASKS_TABLE" in done.stderr.replace("/", " ") or "settings" in done.stderr


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"roleArn": ""}, "roleArn"),
        ({"settings": {"DELEGATION_TASKS_TABLE": ""}}, "DELEGATION_TASKS_TABLE"),
        ({"settings": {"DELEGATION_POLARIS_URL": "polaris"}}, "DELEGATION_POLARIS_URL"),
        ({"settings": {"SECRET": "x"}}, "settings"),
        ({"terminationGracePeriodSeconds": 30}, "terminationGracePeriodSeconds"),
        ({"image": {"repository": ""}}, "repository"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(given: dict[str, Any], wrong: str) -> None:
    """helm applies this schema when it lints, renders and installs."""
    base = values()
    changed = {**base, **given}
    if "settings" in given:
        changed["settings"] = {**base["settings"], **given["settings"]}
    jsonschema.validate(merged(base), SCHEMA)
    with pytest.raises(jsonschema.ValidationError) as raised:
        jsonschema.validate(merged(changed), SCHEMA)
    assert wrong in [*map(str, raised.value.absolute_path)]


def test_the_defaults_of_the_chart_are_those_of_the_manifest() -> None:
    plain = PLAIN_MANIFESTS["Deployment"]["spec"]
    pod = plain["template"]["spec"]
    image = f"{DEFAULTS['image']['repository']}:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"
    assert (plain["replicas"], pod["containers"][0]["image"]) == (DEFAULTS["replicas"], image)
    assert pod["containers"][0]["resources"] == DEFAULTS["resources"]
    assert pod["terminationGracePeriodSeconds"] == DEFAULTS["terminationGracePeriodSeconds"]
    assert SCHEMA["properties"]["settings"]["required"] == list(PLAIN_MANIFESTS["ConfigMap"]["data"])
    assert list(DEFAULTS["settings"]) == list(PLAIN_MANIFESTS["ConfigMap"]["data"])
