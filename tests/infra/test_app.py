"""The app works offline, yields the same templates again, and has no wildcards, secrets or cdk-nag findings."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.environment.context import ROOT, default_context
from infra.environment.resources import TooManyVariables
from infra.package.parts import Processor
from infra.settings import LOG_RETENTION_DAYS, Settings
from infra.wildcards import wildcards
from tests.infra.conftest import TEMPLATES_ALONE, WITH_ASSETS, SynthesizedStack
from tests.localstack.replaced import REPLACED
from tests.localstack.templates import require_used, taken_out, types_of


def templates(folder: Path) -> dict[str, dict[str, Any]]:
    found = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.template.json"))}
    assert len(found) == 3
    return found


def test_localstacks_list_has_a_value_for_every_reference_to_what_it_takes_out(outdir: Path) -> None:
    found = templates(outdir).values()
    require_used(REPLACED, found)
    for template in found:
        for name, body in list(template["Resources"].items()):
            if body["Type"] == "AWS::ElasticLoadBalancingV2::TrustStoreRevocation":  # that run has no revocation lists
                del template["Resources"][name]
        assert not types_of(taken_out(template, REPLACED)) & {each.type for each in REPLACED}


def test_a_wildcard_planted_in_a_real_template_is_found(outdir: Path) -> None:
    template = templates(outdir)["PolarisDelegation-prod-Service.template.json"]
    role = next(body for body in template["Resources"].values() if body["Type"] == "AWS::IAM::Role")
    planted = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:Delete*"], "Resource": "*"}
    role["Properties"]["Policies"][0]["PolicyDocument"]["Statement"].append(planted)
    (found,) = wildcards(template)
    assert found.actions == ("s3:Delete*",)


def test_only_api_gateways_log_role_has_a_managed_policy(outdir: Path) -> None:
    managed = [
        json.dumps(body["Properties"]["ManagedPolicyArns"])
        for template in templates(outdir).values()
        for body in template["Resources"].values()
        if "ManagedPolicyArns" in body.get("Properties", {})
    ]
    assert len(managed) == 1
    assert "AmazonAPIGatewayPushToCloudWatchLogs" in managed[0]


def test_synthesis_fails_on_a_cdk_nag_finding_that_is_not_acknowledged(node: str, tmp_path: Path) -> None:
    from aws_cdk import App, Stack
    from aws_cdk import aws_sqs as sqs

    from infra.stacks.build import check

    planted = App(outdir=str(tmp_path), analytics_reporting=False)
    check(planted)
    sqs.Queue(Stack(planted, "Service"), "Planted")
    with pytest.raises(RuntimeError, match="Planted"):
        planted.synth()
    report = json.loads((tmp_path / "validation-report.json").read_text())
    broken = {
        violation["ruleName"]: [one["constructPath"] for one in violation["violatingConstructs"]]
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
    }
    for rule in ("AwsSolutions-SQS4", "Serverless-SQSRedrivePolicy"):
        assert broken[rule] == ["Service/Planted/Resource"]


def test_no_template_contains_or_resolves_a_secret(outdir: Path) -> None:
    for name, template in templates(outdir).items():
        text = json.dumps(template)
        found = [word for word in ("SecretString", "{{resolve:", "PRIVATE KEY", "AKIA", "password") if word in text]
        assert not found, name


@pytest.mark.long
def test_the_command_writes_the_same_templates_without_account_or_network(
    node: str, outdir: Path, tmp_path: Path
) -> None:
    offline = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(str(part) for part in (ROOT, ROOT / "functions")),
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path),
        "CDK_OUTDIR": str(tmp_path / "cdk.out"),
        "AWS_EC2_METADATA_DISABLED": "true",
        # As `cdk synth -c delegation:package=none` passes it.
        "CDK_CONTEXT_JSON": json.dumps(WITH_ASSETS),
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    (tmp_path / "home").mkdir()
    run = subprocess.run(
        [sys.executable, "-m", "infra.app"], cwd=tmp_path, env=offline, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "end-of-life" not in run.stderr
    assert templates(tmp_path / "cdk.out") == templates(outdir)


@pytest.mark.parametrize(
    ("context", "line"),
    [
        ({"delegation:client-subject": "x"}, "delegation:client-subject: must be a distinguished name"),
        ({"delegation:relam": "x"}, "delegation:relam is not a setting. Did you mean delegation:realm?"),
        ({"delegation:relam": ""}, "delegation:relam is not a setting"),
        ({"delegation:colour": "x"}, "delegation:colour is not a setting. docs/settings.md"),
        ({"delegation.purge.shared": "refuse"}, "delegation.purge.shared is a property. Put it inside delegation:prop"),
        ({"polaris.idempotency.enabled": "false"}, "polaris.idempotency.enabled is a property. Put it inside"),
        ({"delegation:purge.shared": "refuse"}, "delegation:purge.shared is not a setting. The property delegation.pu"),
        (
            {"delegation:log-retention-days": "100"},
            "delegation:log-retention-days: is 100, but CloudWatch Logs offers only 1",
        ),
        ({"delegation:package": "nowhere"}, "delegation:domain-name still has the example"),
    ],
)
def test_a_wrong_setting_is_one_line_and_no_traceback(
    node: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], context: dict[str, str], line: str
) -> None:
    def build(*, outdir: str | None) -> None:
        Settings.from_context({**default_context(), **TEMPLATES_ALONE, **context})

    from infra import app

    monkeypatch.setattr(app, "build", build)
    assert app.main() == 2
    [shown] = capsys.readouterr().err.splitlines()
    assert shown.startswith(line)


def test_variables_without_room_are_one_line_and_no_traceback(
    node: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*, outdir: str | None) -> None:
        raise TooManyVariables("authorizer", 5_000, ("DELEGATION_OPERATOR_SUBJECTS",))

    from infra import app

    monkeypatch.setattr(app, "build", build)
    assert app.main() == 2
    [shown] = capsys.readouterr().err.splitlines()
    assert "longest variables: DELEGATION_OPERATOR_SUBJECTS" in shown


def test_synthesis_warns_of_an_issuer_that_the_authorizer_cannot_reach(network: SynthesizedStack) -> None:
    """The default network has no NAT gateway, and cdk.json an issuer on the internet."""
    from aws_cdk.assertions import Annotations, Match

    found = Annotations.from_stack(network.stack).find_warning(
        "*", Match.string_like_regexp("cannot fetch the keys of .*delegation:nat-gateways=1")
    )
    assert len(found) == 1


def test_logs_are_kept_for_any_time_that_the_settings_accept(node: str) -> None:
    from aws_cdk import App, Stack
    from aws_cdk.assertions import Template

    from infra.constructs.logs import LogKeeping

    stack = Stack(App(), "Logs")
    for days in LOG_RETENTION_DAYS:
        LogKeeping(days).group(stack, f"Log{days}")
    groups = Template.from_stack(stack).find_resources("AWS::Logs::LogGroup").values()
    assert {group["Properties"]["RetentionInDays"] for group in groups} == {*LOG_RETENTION_DAYS}


def test_a_behavior_that_the_package_lacks_is_named(node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A function would report it only in its log, at its first event."""
    from aws_cdk import App, Stack

    from infra.constructs import code

    for part in ("lambda", "spark"):
        (tmp_path / "package" / part / "delegation").mkdir(parents=True)
    (tmp_path / "package" / "lambda" / "acme.py").touch()
    monkeypatch.setattr(code, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError, match="spark has no module acme, which delegation:behaviors names"):
        code.Code(Stack(App()), "Code", package="package", processor=Processor.ARM64, behaviors=["acme:behaviors"])
