"""Every command of docs/deployment.md is run by `make deployment-check` or listed with what it needs, and exists."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.environment.context import default_context
from infra.settings import Settings
from tests.deployment.options import WrongCommand, require_options
from tests.deployment.page import FOLLOWED, PAGE, PageCommand, UnknownCommand, commands, path, steps
from tests.paths import DOCS, ROOT

TEXT = PAGE.read_text(encoding="utf-8")
STEPS = list(steps(path(TEXT)))
SETTINGS = [step for step in STEPS if isinstance(step, dict)]


def test_every_command_of_the_page_is_run_by_the_check_or_listed_with_what_it_needs() -> None:
    needs = {command.text: command.need for command in commands(TEXT)}
    assert sum(need is None for need in needs.values()) >= len(FOLLOWED)
    with pytest.raises(UnknownCommand, match="helm install"):
        _ = PageCommand("helm install delegation").need


@pytest.mark.parametrize("name", ["pki/ca.key", "pki/polaris.key", "principal.json", "probe.json"])
def test_secrets_that_the_page_has_the_reader_make_are_not_committed(name: str) -> None:
    done = subprocess.run(["git", "check-ignore", "--quiet", name], cwd=ROOT, check=False)
    assert done.returncode == 0, "a key or a secret would be added with the rest"


@pytest.mark.parametrize("page", [PAGE, DOCS / "runbook" / "README.md"], ids=lambda page: page.name)
def test_the_version_of_the_aws_cli_is_named(page: Path) -> None:
    """Version 1 has neither `logs tail` nor JSON for blobs as the pages use them."""
    assert re.search(r"AWS CLI 2\b|version 2 of the AWS CLI", " ".join(page.read_text(encoding="utf-8").split()))


def test_the_path_has_each_kind_of_command_that_the_check_runs_in_a_block() -> None:
    run = [step.text for step in STEPS if isinstance(step, PageCommand) and step.need is None]
    assert [kind for kind in FOLLOWED if not any(text.startswith(kind) for text in run)] == []
    assert any("diff --exclusively --template" in text and " -c delegation:" in text for text in run)


def test_the_commands_of_this_project_and_of_aws_exist_with_their_options() -> None:
    for command in commands(TEXT):
        require_options(command.text, whole=command.pasted)


@pytest.mark.parametrize(
    "text",
    [
        "delegation doctor --deploid",
        "delegation certs revoke --forever",
        "delegation cert init",
        "python -m infra.package --processor arm64",
        "python -m infra.packages",
        "aws sns subscribe --topic ARN",
        "aws sns subscribes",
    ],
)
def test_a_command_or_option_that_does_not_exist_is_found(text: str) -> None:
    with pytest.raises(WrongCommand):
        require_options(text, whole=False)


@pytest.mark.parametrize("added", SETTINGS, ids=lambda added: next(iter(added)))
def test_the_settings_of_the_page_can_be_deployed(added: dict[str, Any]) -> None:
    """No example address is left in cdk.json, and the other blocks go with the first."""
    settings = Settings.from_context({**default_context(), **SETTINGS[0], **added})
    assert settings.is_deployable


def test_the_path_has_every_stage_in_order() -> None:
    wanted = ["Account", "CA", "Polaris", "network", "package", "Synthesis", "deployment", "Alarms", "Smoke", "Day"]
    headings = re.findall(r"^### \d+\. (.*)$", TEXT, re.MULTILINE)
    assert [word for word, heading in zip(wanted, headings, strict=True) if word not in heading] == []
