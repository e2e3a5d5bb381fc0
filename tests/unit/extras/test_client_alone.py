"""The plain install: the client works with httpx and pydantic alone, and all else names the extra it lacks."""

import json
import tomllib

import pytest

from tests.paths import ROOT
from tests.unit.extras import fresh
from tests.unit.extras.blocked import run_without
from tests.unit.extras.readme import TASK_ID, examples, serving

AWS = ("boto3", "botocore", "aws_lambda_powertools", "aws_xray_sdk", "s3transfer")
IMPORTED = """
import delegation.client
print([name for name in sys.modules if name.partition(".")[0] in {aws!r}])
print(sum(name.startswith("delegation") for name in sys.modules))
"""


def extras() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def test_the_plain_install_is_the_extra_client():
    assert extras()[""] == extras()["client"]
    assert [one.partition(">")[0] for one in extras()[""]] == ["httpx", "pydantic"]


def test_importing_the_client_loads_no_aws_library():
    done = run_without(IMPORTED.format(aws=set(AWS)))
    assert done.returncode == 0, done.stderr
    loaded, modules = done.stdout.splitlines()
    assert loaded == "[]"
    assert int(modules) <= 51


@pytest.mark.parametrize("number", [0, 1], ids=["blocking", "asyncio"])
def test_an_example_of_the_readme_runs(number):
    with serving() as stub:
        done = run_without(examples()[number], environment=stub.variables)
        keys = {key for key, _ in stub.sent}
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout
    assert TASK_ID in done.stdout
    assert None not in keys
    assert len(stub.sent) == 2 * len(keys)  # each submission was repeated once with its key
    assert "busy (503 STORE_UNAVAILABLE)" in done.stderr


def test_the_readme_has_an_example_of_each_client():
    assert ["AsyncDelegationClient" in example for example in examples()] == [False, True]


MADE = """
from delegation.client import *
from delegation.client.errors import ExtraMissing
from delegation.client.executor import TASK_TYPE
print("delegation.tasks" in sys.modules)
purges = DelegatedPurge(DelegationClient.connect(ClientSettings.read()), None, "POLARIS", authorise=lambda table: True)
print(purges.behavior().task_type)
for make in (
    lambda: LocalTaskExecutor(None, "POLARIS", authorise=lambda table: True),
    lambda: TaskExecutorFactory({TASK_TYPE: "local"}, catalog=None, realm="", authorise=lambda table: True).executor(),
):
    try:
        make()
    except ExtraMissing as error:
        print(error)
"""


@pytest.mark.long
def test_what_needs_the_service_names_its_extra():
    """A delegated purge needs it only for its store in DynamoDB."""
    with serving() as stub:
        done = run_without(MADE, environment=stub.variables)
    tasks, kind, *missing = done.stdout.splitlines()
    assert (tasks, kind) == ("False", "polaris.delegated_purge"), done.stderr
    assert len(missing) == 2
    for text in missing:
        assert text.startswith("LocalTaskExecutor needs ")
        assert text.endswith("pip install 'polaris-delegation-service[service]'")


START = "from delegation.cli import start; start()"


def test_the_command_without_its_extra_names_it():
    done = run_without(START, arguments=("tasks", "list"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "Error: the command `delegation` needs typer, which is not installed",
        "Next: Install the extra: pip install 'polaris-delegation-service[cli]'.",
    ]


def test_the_command_without_its_extra_prints_json_when_asked():
    done = run_without(START, arguments=("tasks", "list", "--json"))
    assert json.loads(done.stderr)["error_code"] == "COMMAND_UNAVAILABLE"
    assert done.returncode == 1


CLI = ("typer", "click", "rich", "shellingham", "pygments", "markdown_it", "mdurl", "annotated_doc")
API_COMMANDS = (
    *("audit", "compact", "config", "deploy-check", "doctor", "drain", "drop", "drop-namespace", "estimate", "expire"),
    *("health", "orphans", "pause", "pauses", "polaris", "policy", "references", "resume", "rewrite-manifests"),
    *("submit", "tasks", "tombstones", "ui"),
)
PERSISTENCE = """
from delegation.cli.main import build
from importlib.metadata import EntryPoint
build([EntryPoint("persistence", "polaris_persistence.commands:app", "delegation.commands")])()
"""


@pytest.mark.long
def test_the_command_of_the_persistence_names_its_own_extra():
    words = ("persistence", "refs", "list", "--objects-table", "o", "--references-table", "r")
    done = run_without(PERSISTENCE, *CLI, "polaris_persistence", arguments=words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "`delegation persistence` cannot run: the module cbor2 is not installed" in done.stderr
    assert "pip install 'polaris-delegation-service[persistence]'" in done.stderr


SERVICE_COMMANDS = ("callbacks", "certs", "purge", "recover", "worker")
LOADED = f"""
from delegation.cli.main import BUILT_IN
for name in {API_COMMANDS!r}:
    BUILT_IN[name].load()
print(sorted(set(BUILT_IN) - set({API_COMMANDS!r}) - set({SERVICE_COMMANDS!r})))
"""


def test_the_commands_that_call_the_api_need_no_other_extra():
    done = run_without(LOADED, *CLI)
    assert done.stdout == "['local']\n", done.stderr  # that one is a part of a checkout


@pytest.mark.parametrize(
    "command",
    ["purge", *(pytest.param(one, marks=pytest.mark.long) for one in SERVICE_COMMANDS if one != "purge")],
)
def test_a_command_that_needs_the_service_names_that_extra(command):
    done = run_without(START, *CLI, arguments=(command, "--anything"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"`delegation {command}` cannot run" in done.stderr
    assert "pip install 'polaris-delegation-service[service]'" in done.stderr


@pytest.mark.parametrize("command", ["health", "references blocking"])
def test_a_command_that_reads_a_table_itself_names_that_extra_when_it_does(command):
    """Its module loads without the service's libraries, of which DynamoDB's client is one."""
    environment = {"DELEGATION_REFERENCES_TABLE": "references", "AWS_DEFAULT_REGION": "us-east-1"}
    done = run_without(START, *CLI, arguments=(*command.split(), "lake"), environment=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "pip install 'polaris-delegation-service[service]'" in done.stderr


@pytest.mark.long
def test_a_fresh_environment_with_the_extra_client_is_as_described(tmp_path):
    """It needs a package index."""
    seen = list(fresh.findings(fresh.FreshEnvironment(tmp_path, "client")))
    assert [text for text, expected in seen if not expected] == []
