"""How `make deployment-check` walks along a page: as a person pastes it, and it stops where the page is wrong."""

import json
from pathlib import Path

import pytest

from tests.deployment.follow import NotAsThePageSays, PastingShell, Walk
from tests.deployment.page import steps


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    return Walk(PastingShell(checkout), lambda *_: None)


def follow(walk: Walk, *lines: str) -> None:
    walk.take(steps("```sh\n" + "\n".join(lines) + "\n```\n"))


def test_what_one_command_sets_is_there_for_the_next_and_nothing_of_this_account(
    walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    follow(
        walk,
        "export PLACE=here",
        'output() { printf %s "$1"; }',
        "read -rsp 'a secret: ' TYPED && export TYPED",
        'export NAMED="$(output file)-$PLACE-$TYPED-${AWS_PROFILE-none}"',
    )
    assert walk.shell.run('printf %s "$NAMED"') == "file-here-made-up:secret-none"


def test_a_command_that_fails_ends_the_walk_with_what_it_printed(walk: Walk) -> None:
    with pytest.raises(NotAsThePageSays, match="`cp absent there` ended with 1"):
        follow(walk, "cp absent there")
    with pytest.raises(NotAsThePageSays, match="MISSING"):
        follow(walk, 'export GIVEN="$MISSING"')


def test_a_resource_that_a_setting_replaces_is_shown_with_its_type(walk: Walk) -> None:
    for name, resource in (("before.json", "OldApplication"), ("cdk.out/Service.template.json", "NewApplication")):
        file = walk.shell.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"Resources": {resource: {"Type": "AWS::EMRServerless::Application"}}}))
    text = 'cdk diff --template before.json "Service" -c delegation:emr-max-vcpu=8'
    assert walk._differences(text, "OldApplication NewApplication") == (
        "shows AWS::EMRServerless::Application OldApplication, AWS::EMRServerless::Application NewApplication"
    )


def test_an_output_that_no_template_has_ends_the_walk(walk: Walk) -> None:
    walk.outputs = {"Service": {"AlarmTopicArn", "ApiFrontTarget12AB"}}
    follow(walk, "output Service ApiFrontTarget")
    with pytest.raises(NotAsThePageSays, match="`output Service Target` finds nothing"):
        follow(walk, "output Service Target")


def test_settings_that_pin_certificates_which_the_page_has_not_made_end_the_walk(walk: Walk) -> None:
    walk.certificates = "CN=polaris,O=Delegation CN=Delegation CA,O=Delegation"
    pinned = """{"delegation:client-subject": "CN=polaris,O=Delegation",
        "delegation:client-issuer": "CN=Delegation CA,O=Delegation",
        "delegation:operator-subjects": "CN=bob,O=Delegation"}"""
    with pytest.raises(NotAsThePageSays, match="no certificate of CN=bob"):
        walk.take(steps(f"```json\n{pinned}\n```\n"))
