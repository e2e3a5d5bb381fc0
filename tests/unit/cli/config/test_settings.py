"""Where the command's settings come from, and how a wrong one is named."""

import itertools
import json
from pathlib import Path

import pytest

from delegation.cli.connection import Connection
from delegation.configuration import SETTINGS, CallerSettings, SettingsInvalid
from tests.unit.cli.conftest import lines
from tests.unit.client.service import TASK_ID, TASKS, json_answer, record

CONFIG = """
profile = "prod"

[profiles.prod]
edge_url = "https://prod.test/delegation-service/api"
token_url = "https://issuer.test/oauth/tokens"
client_id = "polaris"
client_secret = "hunter2"
client_cert = "pki/client.pem"
realm = "POLARIS"
operator_client_id = "alice"
operator_client_secret = "hunter3"
operator_scope = "manage_tasks"

[profiles.dev]
stack = "stack.json"
"""


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "home" / ".config" / "delegation" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(CONFIG, encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("layers", list(itertools.product([False, True], repeat=3))[1:])
def test_a_flag_precedes_the_environment_and_that_the_profile(run, service, config, stack, monkeypatch, layers):
    by_flag, by_environment, by_profile = layers
    if not by_profile:
        config.unlink()
    if by_environment:
        monkeypatch.setenv("DELEGATION_EDGE_URL", "https://environment.test/delegation-service/api")
        others = {"TOKEN_URL": "https://t.test", "CLIENT_ID": "c", "CLIENT_SECRET": "s", "REALM": "R"}
        for name, value in others.items():
            monkeypatch.setenv(f"DELEGATION_{name}", value)
    url = Connection(stack if by_flag else None).client_settings().edge_url
    expected = "edge" if by_flag else "environment" if by_environment else "prod"
    assert url == f"https://{expected}.test/delegation-service/api"


def test_a_profile_is_chosen_by_flag_by_environment_or_by_the_file(config):
    assert CallerSettings.load(environ={}).profile == "prod"
    assert CallerSettings.load(environ={"DELEGATION_PROFILE": "dev"}).profile == "dev"
    assert CallerSettings.load("prod", environ={"DELEGATION_PROFILE": "dev"}).profile == "prod"


def test_paths_of_a_profile_are_relative_to_the_file(config):
    settings = CallerSettings.load(environ={})
    assert settings.get("client_cert") == str(config.parent / "pki" / "client.pem")


def test_a_profile_may_name_a_local_stack(config, stack):
    stack.rename(config.parent / "stack.json")
    settings = CallerSettings.load("dev", environ={})
    assert Connection(None, settings).client_settings().edge_url == "https://edge.test/delegation-service/api"


def test_the_operator_has_an_identity_of_its_own(config):
    connection = Connection(None, CallerSettings.load(environ={}))
    found = connection.operator_settings()
    secret = found.client_secret.get_secret_value()
    assert (found.client_id, secret, found.scope) == ("alice", "hunter3", "manage_tasks")
    assert connection.client_settings().client_id == "polaris"


def test_the_flag_of_the_profile_reaches_a_command(run, config, stack):
    stack.rename(config.parent / "stack.json")
    assert run("--profile", "dev", "config", "show", "--json").exit_code == 0
    (document,) = lines(run("--profile", "dev", "config", "show", "--json").stdout)
    assert (document["profile"], list(document["settings"])) == ("dev", ["stack"])


def test_show_names_each_value_and_its_source_but_no_secret(run, config, monkeypatch):
    monkeypatch.setenv("DELEGATION_REALM", "OTHER")
    text = run("config", "show").stdout
    assert "hunter" not in text
    assert "DELEGATION_REALM" in text
    (document,) = lines(run("config", "show", "--json").stdout)
    assert document["settings"]["realm"] == {"value": "OTHER", "secret": False, "from": "DELEGATION_REALM"}
    assert document["settings"]["client_secret"] == {"value": None, "secret": True, "from": "profile prod"}
    assert all(setting.name in text for setting in SETTINGS)


WRONG = """
colour = "red"

[profiles.prod]
edge_ulr = "https://prod.test"
client_secret = 7
realm = ""
"""


def test_each_wrong_field_of_a_file_has_a_line_with_its_name(run, config):
    config.write_text(WRONG, encoding="utf-8")
    result = run("config", "check")
    assert result.exit_code == 2
    found = [line.strip().partition(":")[0] for line in result.stderr.splitlines() if line.startswith("  ")]
    assert found == ["colour", *(f"profiles.prod.{name}" for name in ("edge_ulr", "client_secret", "realm"))]
    assert "did you mean edge_url?" in result.stderr


@pytest.mark.parametrize("words", [("config", "check"), ("tasks", "show", TASK_ID), ("tasks", "list")])
def test_missing_settings_have_a_line_each_and_no_traceback(run, config, words):
    config.write_text('[profiles.default]\nedge_url = "ftp://x"\ntoken_url = "https://t.test"\n', encoding="utf-8")
    result = run(*words, "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    problem = json.loads(result.stderr)
    assert problem["error_code"] == "SETTINGS_INVALID"
    names = ("edge_url", "client_id", "client_secret", "realm")
    expected = [f"{name} (DELEGATION_{name.upper()})" for name in names]
    assert [each["setting"] for each in problem["problems"]] == expected


def test_check_names_missing_files_and_secrets_that_others_may_read(run, config):
    config.chmod(0o644)
    result = run("config", "check", "--json")
    found = [each["setting"] for each in json.loads(result.stderr)["problems"]]
    assert found == ["client_cert (DELEGATION_CLIENT_CERT)", "profiles.prod"]


def test_check_of_usable_settings_succeeds(run, config):
    config.write_text(CONFIG.replace('client_cert = "pki/client.pem"\n', ""), encoding="utf-8")
    assert run("config", "check").exit_code == 0
    (document,) = lines(run("config", "check", "--json").stdout)
    assert document["problems"] == []


@pytest.mark.parametrize(
    ("text", "named"),
    [("profile = [", "not TOML"), ('profile = "nowhere"', "profile:"), ("profiles = 3", "profiles:")],
)
def test_a_broken_file_is_named_with_the_reason(config, text, named):
    config.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsInvalid, match=named):
        CallerSettings.load(environ={})


def test_a_profile_or_a_file_that_does_not_exist_is_named(config, tmp_path):
    with pytest.raises(SettingsInvalid, match="no profile staging"):
        CallerSettings.load("staging", environ={})
    with pytest.raises(SettingsInvalid, match=r"other\.toml cannot be read"):
        CallerSettings.load(environ={"DELEGATION_CONFIG": str(tmp_path / "other.toml")})


def test_without_a_file_the_settings_are_those_of_the_environment(run, service):
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record()))
    assert CallerSettings.load(environ={}).values == {}
    assert run("tasks", "show", TASK_ID).exit_code == 0
    assert "There is no file " in run("config", "show").stdout


def test_show_has_the_deployment_of_a_cdk_json_and_of_a_stage_file(run, tmp_path, monkeypatch):
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"delegation:stage": "prod", "delegation:realm": "R"}}))
    (tmp_path / "test.json").write_text(json.dumps({"delegation:stage": "test"}))
    monkeypatch.chdir(tmp_path)
    done = run("config", "show", "--stage-file", "test.json", "--json")
    shown = {each["name"]: (each["value"], each["from"]) for each in json.loads(done.stdout)["deployment"]}
    assert shown["delegation:stage"] == ("test", "test.json")
    assert shown["delegation:realm"] == ("R", "cdk.json")
    assert shown["delegation:network"] == ("private", "default")
    refused = run("config", "show", "--stage-file", "absent.json")
    assert (refused.exit_code, "absent.json: cannot be read" in refused.stderr) == (2, True)


def test_check_without_any_connection_names_what_is_missing(run):
    result = run("config", "check", "--json")
    problem = lines(result.stderr)[0]
    assert (result.exit_code, problem["error_code"]) == (1, "NOT_CONNECTED")
    assert "edge_url (DELEGATION_EDGE_URL) is not set" in problem["message"]
    assert "DELEGATION_EDGE_URL" in run("config", "check").output


def test_check_says_which_stack_is_used(run, tmp_path, stack):
    (tmp_path / ".local").mkdir()
    (tmp_path / ".local" / "stack.json").write_text(stack.read_text(encoding="utf-8"), encoding="utf-8")
    result = run("config", "check")
    assert (result.exit_code, "local stack at https://edge.test" in " ".join(result.stdout.split())) == (0, True)
