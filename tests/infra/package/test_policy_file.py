"""The policy file of a deployment: checked when the package is built, and read from it by the functions."""

import json
from pathlib import Path
from typing import Any

import pytest

import delegation
from delegation.polaris.policies import PolicyTarget
from delegation.upkeep.policy_file import PACKAGED, PolicyFileInvalid
from delegation.wiring import policies
from infra.package import build


def written(path: Path, **changes: Any) -> Path:
    policy = {
        "name": "keep-a-week",
        "type": "system.snapshot-expiry",
        "content": {"enable": True, "config": {"max_snapshot_age_days": 7}},
        "attached": [{"catalog": "lake"}],
    }
    path.write_text(json.dumps({"format": 1, "policies": [policy | changes]}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"content": {"enable": "yes"}}, "the policy keep-a-week, attached to lake, has no effect"),
        ({"content": {"enable": True, "config": {"max_snapshot_age_days": -1}}}, "max_snapshot_age_days"),
        ({"type": "system.compaction"}, "type"),
        ({"attached": [{"catalog": "lake", "table": "t"}]}, "the table t has no namespace"),
    ],
)
def test_a_file_with_a_policy_that_has_no_effect_is_not_packaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], named: str
) -> None:
    path = written(tmp_path / "p.json", **changes)
    with pytest.raises(PolicyFileInvalid, match=named):
        build.policies_in(path)
    with pytest.raises(SystemExit):
        build.main(["--policy-file", str(path)])
    assert named in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileInvalid, match="No such file"):
        build.policies_in(tmp_path / "none.json")


@pytest.mark.parametrize("packaged", [True, False], ids=["packaged", "named by the variable"])
def test_the_functions_read_the_file_of_the_package_and_a_worker_the_one_of_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packaged: bool
) -> None:
    path = tmp_path / "delegation" / "__init__.py"
    monkeypatch.setattr(delegation, "__file__", str(path))
    file = tmp_path / (PACKAGED if packaged else "mine.json")
    file.write_text(build.policies_in(written(tmp_path / "p.json")), encoding="utf-8")
    if not packaged:
        monkeypatch.setenv("DELEGATION_POLICY_FILE", str(file))
    found = policies.deployed_policies(None)  # type: ignore[arg-type]  # the catalog is not asked
    [one] = found.applicable(PolicyTarget("lake", ("sales",), "orders"), "system.snapshot-expiry")
    assert (one.policy.name, one.of_file, one.inherited) == ("keep-a-week", True, True)


def test_a_deployment_without_a_file_asks_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation, "__file__", str(tmp_path / "delegation" / "__init__.py"))
    assert policies.deployed_policies(None).file is None  # type: ignore[arg-type]
