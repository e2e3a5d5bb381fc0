"""`delegation doctor` names the cause of each broken set-up, and how to mend it."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from delegation.cli.doctor.catalog import UNIQUE_LOCATION
from delegation.cli.doctor.checks import CheckResult, findings_screen
from delegation.cli.doctor.service import check_certificate
from infra.local.identities import CertificateAuthority
from tests.unit.cli.conftest import lines
from tests.unit.cli.doctor.world import HEALTHY


def broken(run, *words: str) -> dict[str, dict[str, str]]:
    """Return the failed checks by their names."""
    result = run("doctor", "--namespace", "lake.sales", *words, "--json")
    (document,) = lines(result.stdout)
    found = {each["name"]: each for each in document["checks"] if each["ok"] is False}
    assert (result.exit_code, document["ok"]) == ((1, False) if found else (0, True))
    assert all(each["fix"] for each in found.values())
    return found


def test_a_healthy_set_up_has_no_failed_check(run, settings):
    assert broken(run) == {}
    text = run("doctor", "--namespace", "lake.sales").stdout
    assert "✗" not in text
    assert "checks passed" in text
    for part in ("handshake", "token", "authorizer", "queue", "tasks table", "plan bucket", "Polaris", "principal"):
        assert f"✓  {part}" in text


def test_an_empty_address_is_a_failed_check_and_the_other_checks_are_made(run, settings, monkeypatch):
    monkeypatch.setenv("DELEGATION_POLARIS_URL", "")
    (document,) = lines(run("doctor", "--json").stdout)
    assert [one["detail"] for one in document["checks"] if one["id"] == "settings"] == [
        "polaris_url (DELEGATION_POLARIS_URL): is set and empty"
    ]
    assert next(one for one in document["checks"] if one["id"] == "authorizer")["ok"] is True


def test_a_recurring_task_of_the_service_that_ended_is_named(run, settings, deployment):
    task = {"task_id": "0a0a", "task_type": "STORE_MAINTENANCE", "status": "FAILURE", "error_code": "CANCELLED"}
    deployment.ended = [task]
    assert "STORE_MAINTENANCE 0a0a (CANCELLED)" in broken(run)["maintenance"]["detail"]
    assert "delegation tasks retry 0a0a" in run("doctor").stdout
    deployment.ended = None
    assert "maintenance" not in broken(run)


def other_authority(servers, tmp_path):
    return CertificateAuthority.create(tmp_path / "other", name="Other CA")


GONE = {"polaris_url": "http://127.0.0.1:1/api/catalog", "polaris_admin_credential": None}
BY_SETTINGS = [
    ("certificate|no client certificate is set|operator_cert", {"operator_cert": None, "operator_key": None}),
    ("handshake|cannot be reached|Check edge_url", {"edge_url": "https://localhost:1/delegation-service/api"}),
    ("token|refuses the client alice|Correct client_id and client_secret", {"client_secret": "wrong"}),
    ("token|refuses the scope other|allow alice the scope", {"scope": "other"}),
    ("token|cannot be reached|Check token_url", {"token_url": "http://127.0.0.1:1/token"}),
    ("realm|serves POLARIS, the setting is OTHER|Set realm", {"realm": "OTHER"}),
    ("tasks table|does not exist|region", {"tasks_table": "gone"}),
    ("tasks table|not the task table|DELEGATION_TASKS_TABLE", {"tasks_table": "idempotency"}),
    ("queue|does not exist|outputs show the names", {"queue_url": "https://sqs.us-east-1.amazonaws.com/1/gone"}),
    ("plan bucket|does not exist|outputs show the names", {"plan_bucket": "gone-with-the-wind"}),
    ("Polaris|cannot be reached|Check polaris_url", GONE),
    ("Polaris|refuses the credential|polaris_service_credential", {"polaris_service_credential": "service:wrong"}),
]
"""Settings that break one part: the check, the cause and the fix that must be named."""


def assert_named(run, said):
    check, cause, fix = said.split("|")
    found = broken(run)
    assert check in found
    assert cause in found[check]["detail"]
    assert fix in found[check]["fix"]
    if check != "certificate":  # the server refuses these too
        assert list(found) == [check]


@pytest.mark.parametrize(("said", "changed"), BY_SETTINGS, ids=[said for said, _ in BY_SETTINGS])
def test_a_wrong_setting_is_named_with_its_cause_and_fix(run, settings, said, changed):
    settings(**changed)
    assert_named(run, said)


class Broken:
    """Each method breaks one part; its docstring is the check, the cause and the fix that must be named."""

    def unknown_service_certificate(self, settings, servers, deployment, tmp_path):
        """handshake|is not trusted|Set ca_cert"""
        settings(ca_cert=str(other_authority(servers, tmp_path).files.cert))

    def certificate_of_another_ca(self, settings, servers, deployment, tmp_path):
        """handshake|trust store lacks the CA|Use a certificate of the CA"""
        pair = other_authority(servers, tmp_path).issue_client("alice", name="alice")
        settings(operator_cert=str(pair.cert), operator_key=str(pair.key))

    def expired_certificate(self, settings, servers, deployment, tmp_path):
        """certificate|expired|certs rotate"""
        past = datetime.now(UTC) - timedelta(days=800)
        pair = servers.authority.issue_client("old", name="old", now=past)
        settings(operator_cert=str(pair.cert), operator_key=str(pair.key))

    def key_of_another_certificate(self, settings, servers, deployment, tmp_path):
        """handshake|cannot be used: KEY_VALUES_MISMATCH|the key must belong to"""
        pair = servers.authority.issue_client("bob", name="bob")
        settings(operator_key=str(pair.key))

    def address_without_its_base_path(self, settings, servers, deployment, tmp_path):
        """handshake|is not the service|/delegation-service/api"""
        settings(edge_url=servers.edge_url.removesuffix("/delegation-service/api"))

    def address_without_tls(self, settings, servers, deployment, tmp_path):
        """handshake|begins with http://|https://"""
        settings(edge_url=servers.edge_url.replace("https://", "http://"))

    def address_of_a_server_without_tls(self, settings, servers, deployment, tmp_path):
        """handshake|does not speak TLS|edge_url"""
        settings(edge_url=servers.plain_url.replace("http://", "https://") + "/delegation-service/api")

    def token_address_without_tls(self, settings, servers, deployment, tmp_path):
        """token|begins with http://|https://"""
        settings(token_url=servers.edge_url.replace("https://", "http://") + "/token")

    def mapping_that_api_gateway_does_not_have(self, settings, servers, deployment, tmp_path):
        """handshake|is not the service|edge_url must end with /delegation-service/api"""
        deployment.elsewhere = 403
        settings(edge_url=servers.edge_url.removesuffix("/delegation-service/api"))

    def polaris_without_its_base_path(self, settings, servers, deployment, tmp_path):
        """Polaris|does not answer like Polaris|/api/catalog"""
        settings(polaris_url=servers.plain_url)

    def unknown_catalog(self, settings, servers, deployment, tmp_path):
        """namespace|lake.sales: Polaris has no such catalog|first part"""
        for path in [path for path in deployment.polaris if "/lake" in path or path.endswith("/v1/config")]:
            del deployment.polaris[path]

    def token_that_the_service_refuses(self, settings, servers, deployment, tmp_path):
        """authorizer|refuses the token|delegation:token-issuer"""
        deployment.authorized = 401

    def clock_that_is_wrong(self, settings, servers, deployment, tmp_path):
        """authorizer|refuses the token|clocks differ by"""
        deployment.authorized, deployment.date = 401, "Wed, 21 Oct 2015 07:28:00 GMT"

    def identity_that_is_not_admitted(self, settings, servers, deployment, tmp_path):
        """authorizer|refuses the certificate or the scope|Admit CN=alice"""
        deployment.authorized = 403

    def service_without_polaris(self, settings, servers, deployment, tmp_path):
        """service: Polaris|POLARIS_UNAVAILABLE|Check that Polaris runs"""
        down = {"name": "Polaris", "ok": False, "error_code": "POLARIS_UNAVAILABLE"}
        deployment.health = {**HEALTHY, "status": "down", "dependencies": [down]}

    def unknown_namespace(self, settings, servers, deployment, tmp_path):
        """namespace|lake.sales: there is no such namespace|CATALOG.LEVEL"""
        deployment.polaris.pop("/api/catalog/v1/lake/namespaces/sales/tables")

    def namespace_that_may_not_be_listed(self, settings, servers, deployment, tmp_path):
        """namespace|may not do this|polaris setup"""
        deployment.forbidden = frozenset({"/api/catalog/v1/lake/namespaces/sales/tables"})

    def missing_principal(self, settings, servers, deployment, tmp_path):
        """principal|has no principal delegation|polaris setup lake"""
        deployment.polaris.pop("/api/management/v1/principals/delegation")

    def missing_grant(self, settings, servers, deployment, tmp_path):
        """grant TABLE_WRITE_DATA|missing on namespace sales|polaris setup lake"""
        del deployment.polaris["/api/management/v1/catalogs/lake/catalog-roles/purger/grants"]["grants"][-1]


BROKEN = [name for name in vars(Broken) if not name.startswith("_")]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_set_up_is_named_with_its_cause_and_fix(run, settings, servers, deployment, tmp_path, name):
    breaking = getattr(Broken(), name)
    breaking(settings, servers, deployment, tmp_path)
    assert_named(run, breaking.__doc__)


def test_missing_settings_are_findings_too(run, settings):
    settings(client_secret=None, realm=None)
    found = broken(run)
    assert "is not set" in found["settings"]["detail"]


def test_what_is_not_set_is_not_checked_and_no_failure(run, settings, aws):
    settings(**dict.fromkeys(aws), polaris_url=None)
    (document,) = lines(run("doctor", "--json").stdout)
    assert {each["name"] for each in document["checks"] if each["ok"] is None} == {"AWS", "Polaris"}


def test_no_finding_shows_a_secret(run, settings):
    settings(
        client_secret="hunter2", polaris_service_credential="service:hunter3", polaris_admin_credential="a:hunter4"
    )
    assert "hunter" not in run("doctor", "--namespace", "lake.sales").output


def test_a_certificate_that_ends_soon_is_said_to(servers):
    found = check_certificate(servers.operator.cert, servers.operator.key, datetime.now(UTC) + timedelta(days=360))
    assert found.ok
    assert "soon" in found.detail


def test_a_fix_is_on_one_line_so_that_its_command_can_be_copied():
    command = f"aws sns subscribe --topic-arn {'a' * 60} --protocol email"
    findings = [CheckResult("queue", True, "well"), CheckResult("alarms' topic", False, "nobody", command)]
    console = Console(width=80)
    with console.capture() as capture:
        console.print(findings_screen(findings), crop=False)
    lines = capture.get().splitlines()
    assert f"   → {command}" in lines
    assert lines[0].index("well") == lines[1].index("nobody"), "the names are one column"


@pytest.mark.parametrize(
    ("kind", "word"),
    [({"type": "EXTERNAL"}, "EXTERNAL"), ({"storageConfigInfo": {"storageType": "GCS"}}, "storage type is GCS")],
)
def test_a_federated_catalog_and_one_of_another_storage_are_named(run, settings, deployment, kind, word):
    deployment.polaris["/api/management/v1/catalogs/lake"] |= kind
    assert word in broken(run)["catalog"]["detail"]


@pytest.mark.parametrize(("value", "ok"), [("true", True), ("false", None), (None, None)])
def test_a_catalog_whose_tables_get_the_location_of_dropped_ones_is_named(run, settings, deployment, value, ok):
    properties = deployment.polaris["/api/management/v1/catalogs/lake"]["properties"]
    properties.pop("polaris.config.default-unique-table-location.enabled", None)
    if value is not None:
        properties["polaris.config.default-unique-table-location.enabled"] = value
    result = run("doctor", "--namespace", "lake.sales", "--json")
    (document,) = lines(result.stdout)
    [found] = [one for one in document["checks"] if one["id"] == "names"]
    assert (result.exit_code, found["ok"]) == (0, ok)
    assert ok or UNIQUE_LOCATION in found["detail"]


def test_an_endpoint_by_which_dropped_tables_may_be_kept_is_named(run, settings, deployment):
    tables = "/v1/{prefix}/namespaces/{namespace}/tables"
    known = [f"POST {tables}/{{table}}/unregister", f"GET {tables}/{{table}}/plan/{{plan-id}}", f"GET {tables}"]
    config = deployment.polaris["/api/catalog/v1/config"]
    config["endpoints"] = known
    assert "endpoints" not in str(run("doctor", "--namespace", "lake.sales", "--json").stdout)
    config["endpoints"] = [*known, f"POST {tables}/{{table}}/undrop"]
    result = run("doctor", "--namespace", "lake.sales", "--json")
    [found] = [one for one in lines(result.stdout)[0]["checks"] if one["id"] == "endpoints"]
    assert (result.exit_code, found["ok"]) == (0, None)
    assert "/undrop" in found["detail"]
    assert "/unregister" not in found["detail"]
