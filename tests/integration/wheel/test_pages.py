"""What users do with the wheel alone: every block of README and client.md beside a running stack.

The stack runs from the checkout, as a deployment would run elsewhere; client and command come from the wheel, in an
environment and a directory that have nothing of this checkout.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.local.stack_process import StackProcess
from tests.paths import ROOT
from tests.unit.extras.fresh import FreshEnvironment, built_wheel
from tests.unit.extras.readme import examples

pytestmark = [pytest.mark.long, pytest.mark.stack, pytest.mark.timeout(900)]
CLIENT_PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class User:
    """A directory with nothing in it, the wheel's environment, and the stack that both use."""

    folder: Path
    wheel: FreshEnvironment
    stack: Path

    def variables(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.folder), "DELEGATION_STACK": str(self.stack), "COLUMNS": "80"}

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        program = self.wheel.venv / "bin" / words[0]
        return subprocess.run(
            [str(program), *words[1:]],
            cwd=self.folder,
            env={**self.variables(), **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def done(self, *words: str, **variables: str) -> str:
        """Run a program that has to succeed; return its output."""
        result = self.run(*words, **variables)
        assert result.returncode == 0, (words, result.stdout[-2000:], result.stderr[-2000:])
        return result.stdout


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    folder = tmp_path_factory.mktemp("user")
    wheel = FreshEnvironment(folder / "installed", "cli,service", built_wheel(folder / "built"))
    stack = StackProcess(folder / "state", "--sweep-seconds", "2", "--gateway")
    try:
        stack.ready()
        made = User(folder / "home", wheel, stack.path)
        made.folder.mkdir()
        yield made
    finally:
        stack.end(signal.SIGTERM)


@pytest.fixture
def tables(user: User) -> None:
    """The demo's tables, which only a checkout can write; those that were purged are written again."""
    delegation = ROOT / ".venv" / "bin" / "delegation"
    subprocess.run([str(delegation), "local", "tables", "--stack", str(user.stack)], check=True, capture_output=True)


def test_nothing_of_the_checkout_is_used(user):
    where = user.done("python", "-c", "import delegation; print(delegation.__file__)").strip()
    assert where.startswith(str(user.wheel.venv))


@pytest.mark.usefixtures("tables")
def test_the_commands_of_the_readme(user):
    submitted = user.done("delegation", "submit", "lake.shop.orders", "--wait", "--yes")
    assert "SUCCESS" in submitted
    first = user.done("delegation", "tasks", "list").splitlines()[0].split("\t")
    listed = json.loads(user.done("delegation", "tasks", "list", "--table", "lake.shop.orders", "--json"))
    assert len(first[0]) == 36
    assert "SUCCESS" in user.done("delegation", "tasks", "history", listed["tasks"][0]["task_id"])
    assert "lake.shop.customers" in user.done("delegation", "drop", "lake.shop.customers", "--wait", "--yes")
    assert "lake.shop.customers" in user.done("delegation", "tombstones", "list")
    assert json.loads(user.done("delegation", "doctor", "--json"))["format"] == 1


def test_the_readme_has_the_tables_written_again_before_its_examples():
    """Those that the commands above them purged have no files, and every example ended with TABLE_METADATA_MISSING."""
    chapter = (ROOT / "README.md").read_text(encoding="utf-8").partition("## From your code")[2]
    assert "`delegation local tables`" in chapter.partition("```python")[0]


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("number", [0, 1], ids=["blocking", "asyncio"])
def test_the_examples_of_the_readme(user, number):
    assert "SUCCESS" in user.done("python", "-c", examples()[number])


EXECUTOR = """
import json, os
from pathlib import Path
import httpx
from pydantic import SecretStr
from delegation.client import TableIdentifier
from delegation.client.executor import TaskExecutorFactory
from delegation.polaris.client import PolarisClient
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import Transport
from delegation.timestamps import utc_now

stack = json.loads(Path(os.environ["STACK"]).read_text())
name, _, secret = stack["polaris_credential"].partition(":")
credentials = ClientCredentials(name, SecretStr(secret))
transport = Transport(httpx.Client())
tokens = OAuth2TokenSource(f"{stack['polaris_url']}/v1/oauth/tokens", lambda: credentials, clock=utc_now,
                           scope=stack["polaris_scope"], realm=stack["realm"], transport=transport)
polaris = PolarisClient(stack["polaris_url"], tokens, realm=stack["realm"], transport=transport)
Path("application.properties").write_text(
    "polaris.delegation-service.task-type=delegated\\n"
    f"polaris.delegation-service.endpoint={stack['edge_url']}\\n"
)
def may_drop_with_purge(identifier):
    return True
"""


@pytest.mark.usefixtures("tables")
def test_the_executor_of_the_clients_page(user):
    factory, drops = python_blocks(CLIENT_PAGE)
    stack = json.loads(user.stack.read_text(encoding="utf-8"))
    settings = ("edge_url", "ca_cert", "client_cert", "client_key", "token_url", "client_id", "client_secret", "scope")
    variables = {f"DELEGATION_{name.upper()}": stack[name] for name in (*settings, "realm")}
    names = "[one.name for one in polaris.list_tables('lake', ('shop',))]"
    program = f"{EXECUTOR}\n{factory}\nprint({names})"
    listed = user.done("python", "-c", program, STACK=str(user.stack), **variables)
    assert "'orders'" not in listed
    assert "'events'" in listed
    assert "[" in user.done("python", "-c", f"{EXECUTOR}\n{drops}\nprint(behaviors(None))", STACK=str(user.stack))


def test_the_status_page_answers(user):
    words = [str(user.wheel.venv / "bin" / "delegation"), "ui", "--json"]
    with subprocess.Popen(words, cwd=user.folder, env=user.variables(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            code = (
                "import sys, httpx\n"
                "page = httpx.get(sys.argv[1]); tasks = httpx.get(sys.argv[1] + 'api/tasks')\n"
                "print(page.status_code, tasks.status_code)"
            )
            assert user.done("python", "-c", code, url).split()[0] == "200"
        finally:
            process.terminate()
