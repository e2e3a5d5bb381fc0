"""What a stack tells its user: stack.json, the summary, and that its folder is in use."""

import json
import stat

import pytest

from delegation.cli.connection import Stack
from tests.integration.local.stack_process import StackProcess

pytestmark = pytest.mark.stack


def test_stack_json_has_its_fields_and_only_its_owner_can_read_it(world):
    stack = json.loads(world.process.path.read_text())
    assert tuple(stack) == tuple(Stack.model_fields)
    assert stat.S_IMODE(world.process.path.stat().st_mode) == 0o600
    assert stack["edge_url"].startswith("https://")
    assert stack["edge_url"].endswith("/delegation-service/api")
    assert stack["scope"] == "execute_tasks"
    assert ":" in stack["polaris_credential"]
    assert "://" not in stack["warehouse"]


def test_the_summary_names_every_address_and_no_secret(world):
    stack, summary = json.loads(world.process.path.read_text()), world.process.output
    for name in ("edge_url", "token_url", "polaris_url", "s3_endpoint", "dynamodb_endpoint", "aws_endpoint"):
        assert stack[name] in summary
    assert stack["client_secret"] not in summary
    assert stack["polaris_credential"].partition(":")[2] not in summary


def test_a_folder_in_use_is_refused_and_not_changed(world):
    before = world.process.path.read_bytes()
    second = StackProcess(world.process.state_dir)
    assert second.wait() == 1
    assert "another stack uses" in second.output
    assert world.process.path.read_bytes() == before
