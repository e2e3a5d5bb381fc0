import ast
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

import delegation
from delegation.cli.main import ENTRY_POINTS, build
from polaris_common.errors import DelegationError

extra = typer.Typer(help="A group of another package.")


class Foreseen(DelegationError):
    code = "FORESEEN"


@extra.command("fail")
def fail():
    """Fail in a foreseen way."""
    raise Foreseen("as foreseen")


@extra.command("crash")
def crash():
    """Fail with a bug."""
    raise ZeroDivisionError


def entry(value: str, name: str = "extra") -> EntryPoint:
    return EntryPoint(name, value, ENTRY_POINTS)


def test_group_of_another_package_is_a_command():
    result = CliRunner().invoke(build([entry(f"{__name__}:extra")]), ["--help"])
    assert result.exit_code == 0
    assert "A group of another package." in result.stdout


def test_foreseen_error_of_any_group_gets_a_message_and_a_next_step():
    result = CliRunner().invoke(build([entry(f"{__name__}:extra")]), ["extra", "fail"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "as foreseen" in result.stderr
    assert "Next: " in result.stderr


def test_bug_shows_its_traceback():
    result = CliRunner().invoke(build([entry(f"{__name__}:extra")]), ["extra", "crash"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_group_with_a_missing_module_names_what_to_install():
    app = build([entry("no_such_module_anywhere:app", name="more")])
    assert "not installed" in CliRunner().invoke(app, ["--help"]).stdout
    result = CliRunner().invoke(app, ["more", "up", "--port", "1"])
    assert result.exit_code == 1
    assert "no_such_module_anywhere" in result.stderr
    assert "pip install 'polaris-delegation-service[more]'" in result.stderr


def test_no_command_prints_help_and_is_misuse(run):
    result = run()
    assert result.exit_code == 2
    assert "Usage" in result.output


def test_local_outside_a_checkout_names_the_next_step(monkeypatch, tmp_path):
    monkeypatch.setattr(delegation, "__file__", str(tmp_path / "site-packages" / "delegation" / "__init__.py"))
    monkeypatch.delitem(sys.modules, "delegation.cli.local", raising=False)
    result = CliRunner().invoke(build([]), ["local", "up", "--port", "1"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Check out the source of this release" in result.stderr


HELP = """
import sys
from delegation.cli.main import build
try:
    build([])(["--help"])
except SystemExit:
    print(sorted(name for name in sys.modules if name.startswith("delegation")))
"""


def test_help_imports_no_command():
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    loaded = {"delegation", "delegation.cli", "delegation.cli.errors", "delegation.cli.main"}
    assert set(ast.literal_eval(done.stdout.splitlines()[-1])) == loaded


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ("ValueError('a\\nb')", "an item failed unexpectedly; others continue: ValueError: a\\nb"),
        ("ReferencesUnavailable('no')", "an item failed; others continue: REFERENCES_UNAVAILABLE: no"),
    ],
)
def test_an_item_that_fails_is_a_sentence_on_stderr_and_nothing_with_json(error, sentence, as_json):
    code = f"""
import contextlib, sys
from delegation.cli.main import main
from delegation.items import each_item
from delegation.references.errors import ReferencesUnavailable
sys.argv = ["delegation", "--version"{', "--json"' * as_json}]
with contextlib.suppress(SystemExit):
    main()

def act(item):
    raise {error}

list(each_item(["an item"], act, name="a.loop"))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.count("\n") <= 1
    assert [one for one in ran.stderr.splitlines() if "Warning" in one or "Traceback" in one] == (
        [] if as_json else [f"Warning: a.loop an item: {sentence}"]
    )


# Each takes longer to import than the help may take.
HEAVY = {"boto3", "botocore", "cryptography", "httpx", "pydantic", "rich"}
STARTED = """
import sys
sys.argv = ["delegation", *{words!r}]
from delegation.cli import start
try:
    start()
finally:
    print("imported", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize("words", [["--help"], ["tasks", "--help"], ["tasks", "list", "--help"]])
def test_help_imports_nothing_heavy(words):
    command = [sys.executable, "-c", STARTED.format(words=words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    help_text, _, imported = done.stdout.rpartition("imported ")
    assert "Usage: delegation" in help_text
    assert HEAVY & set(imported.split()) == set()
