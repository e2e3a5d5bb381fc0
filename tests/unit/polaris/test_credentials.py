from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Event

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import CredentialVendingFailed, NoSuchTable, PolarisUnavailable
from delegation.polaris.credentials import (
    REFRESH_MARGIN,
    RETRY_AFTER_FAILED_REFRESH,
    VendedCredentials,
    is_below,
    parse_credentials,
    select_credential,
)
from delegation.polaris.model import LoadedTable
from delegation.storage.credentials import S3Credential
from tests.kit.clocks import Clock

FILE = "s3://lake/ns/orders/data/f.parquet"


def keys(name: str, **more: str) -> dict[str, str]:
    return {"s3.access-key-id": name, "s3.secret-access-key": f"{name}-secret", **more}


def credential(name: str, prefix: str = "s3://lake/ns/orders", expires_at: datetime | None = None) -> S3Credential:
    return S3Credential(prefix, name, f"{name}-secret", f"{name}-token", expires_at)


def table(*credentials: S3Credential, table_uuid: str = "u", **properties: str) -> LoadedTable:
    return LoadedTable(
        TableIdentifier("lake", ("ns",), "orders"),
        "s3://lake/ns/orders/metadata/1.metadata.json",
        {"table-uuid": table_uuid, "location": "s3://lake/ns/orders", "format-version": 2, "properties": properties},
        {},
        credentials,
    )


def test_storage_credentials_precede_those_of_config() -> None:
    parsed = parse_credentials(
        keys("C", **{"s3.session-token": "t", "s3.endpoint": "http://x"}),
        [
            {"prefix": "s3://lake/a", "config": keys("A")},
            {"prefix": "s3://lake/b", "config": {"s3.access-key-id": "half"}},
        ],
    )
    assert [(c.prefix, c.access_key_id, c.session_token) for c in parsed] == [
        ("s3://lake/a", "A", None),
        ("", "C", "t"),
    ]


def test_a_credential_that_config_repeats_keeps_its_prefix() -> None:
    [parsed] = parse_credentials(keys("A"), [{"prefix": "s3://lake/ns/orders", "config": keys("A")}])
    with pytest.raises(CredentialVendingFailed, match="none of the vended credentials covers it"):
        select_credential(table(parsed), "s3://lake/elsewhere/f.parquet")


@pytest.mark.parametrize("name", ["s3.session-token-expires-at-ms", "expiration-time"])
def test_the_expiry_is_read_in_milliseconds_under_either_name(name: str) -> None:
    [parsed] = parse_credentials(keys("A", **{name: "1790000000500"}), [])
    assert parsed.expires_at == datetime.fromtimestamp(1_790_000_000.5, UTC)


@pytest.mark.parametrize("value", ["soon", "9" * 30])
def test_an_unreadable_expiry_is_refused(value: str) -> None:
    with pytest.raises(CredentialVendingFailed):
        parse_credentials(keys("A", **{"expiration-time": value}), [])


@pytest.mark.parametrize(
    ("uri", "prefix", "below"),
    [
        (FILE, "s3://lake/ns/orders", True),
        (FILE, "s3://lake/ns/orders/", True),
        (FILE, "s3a://lake/ns/orders", True),
        ("s3n://lake/ns/orders/x", "s3://lake/ns/orders", True),
        ("s3://lake/ns/orders", "s3://lake/ns/orders/", True),
        ("s3://lake/ns/orders2/x", "s3://lake/ns/orders", False),
        ("s3://lake2/ns", "s3://lake", False),
        (FILE, "s3://lake", True),
        (FILE, "s3", True),
        (FILE, "s3://", True),
        (FILE, "", True),
        (FILE, "gs", False),
    ],
)
def test_prefixes_cover_whole_path_components(uri: str, prefix: str, below: bool) -> None:
    assert is_below(uri, prefix) is below


def test_the_longest_matching_prefix_wins_over_order_and_config() -> None:
    loaded = table(
        credential("bucket", "s3://lake"), credential("data", "s3://lake/ns/orders/data"), credential("any", "")
    )
    assert select_credential(loaded, FILE).access_key_id == "data"
    assert select_credential(loaded, "s3://lake/else").access_key_id == "bucket"
    assert select_credential(loaded, "s3://other/f").access_key_id == "any"


def test_a_write_path_outside_the_location_uses_the_tables_credential() -> None:
    loaded = table(credential("table"), **{"write.data.path": "s3://fast/orders"})
    assert select_credential(loaded, "s3://fast/orders/f.parquet").access_key_id == "table"
    with pytest.raises(CredentialVendingFailed, match="covers"):
        select_credential(loaded, "s3://fast/others/f.parquet")


def test_missing_vended_credentials_are_reported() -> None:
    with pytest.raises(CredentialVendingFailed, match="vended no S3 credentials"):
        select_credential(table(), FILE)


class Vending:
    """Loads that vend A1, A2, … for `lifetime`, or raise the next of `failures`."""

    def __init__(self, clock: Clock, lifetime: timedelta = timedelta(hours=1)) -> None:
        self.clock, self.lifetime = clock, lifetime
        self.count = 0
        self.table_uuid = "u"
        self.failures: list[Exception] = []
        self.entered, self.go = Event(), Event()
        self.go.set()

    def __call__(self) -> LoadedTable:
        self.entered.set()
        assert self.go.wait(10)
        self.count += 1
        if self.failures:
            raise self.failures.pop(0)
        vended = credential(f"A{self.count}", expires_at=self.clock() + self.lifetime)
        return table(vended, table_uuid=self.table_uuid)


@pytest.fixture
def vending(clock: Clock) -> Vending:
    return Vending(clock)


@pytest.fixture
def vended(vending: Vending, clock: Clock) -> VendedCredentials:
    return VendedCredentials(vending, clock=clock)


@pytest.fixture
def ending(vended: VendedCredentials, clock: Clock) -> VendedCredentials:
    """Credentials within the margin before their end."""
    vended.for_uri(FILE)
    clock.advance(timedelta(minutes=56))
    return vended


def test_a_credential_is_used_until_the_margin(vending: Vending, vended: VendedCredentials, clock: Clock) -> None:
    assert vended.for_uri(FILE).access_key_id == "A1"
    clock.now += timedelta(hours=1) - REFRESH_MARGIN - timedelta(seconds=1)
    assert vended.for_uri(FILE).access_key_id == "A1"
    clock.advance(timedelta(seconds=2))
    assert vended.for_uri(FILE).access_key_id == "A2"
    assert vending.count == 2


def test_short_lived_credentials_are_not_loaded_at_every_call(clock: Clock) -> None:
    vending = Vending(clock, lifetime=REFRESH_MARGIN)
    vended = VendedCredentials(vending, clock=clock)
    for _ in range(10):
        vended.for_uri(FILE)
    assert vending.count == 1


def test_a_credential_without_expiry_is_kept(clock: Clock) -> None:
    loads = [table(credential("A1")), table(credential("A2"))]
    vended = VendedCredentials(lambda: loads.pop(0), clock=clock)
    vended.for_uri(FILE)
    clock.advance(timedelta(days=30))
    assert vended.for_uri(FILE).access_key_id == "A1"


def test_while_one_refreshes_the_others_use_the_valid_credential(vending: Vending, ending: VendedCredentials) -> None:
    vending.entered.clear()
    vending.go.clear()
    with ThreadPoolExecutor(1) as pool:
        refreshing = pool.submit(ending.for_uri, FILE)
        assert vending.entered.wait(10)
        assert ending.for_uri(FILE).access_key_id == "A1"
        vending.go.set()
        assert refreshing.result(10).access_key_id == "A2"
    assert ending.for_uri(FILE).access_key_id == "A2"
    assert vending.count == 2


def test_threads_without_a_valid_credential_wait_for_one_load(clock: Clock) -> None:
    vending = Vending(clock)
    vending.go.clear()
    vended = VendedCredentials(vending, clock=clock)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(vended.for_uri, FILE) for _ in range(8)]
        assert vending.entered.wait(10)
        vending.go.set()
        assert {future.result(10).access_key_id for future in waiting} == {"A1"}
    assert vending.count == 1


def test_a_transient_failure_to_refresh_is_no_error(vending: Vending, ending: VendedCredentials, clock: Clock) -> None:
    vending.failures = [PolarisUnavailable("away")]
    assert ending.for_uri(FILE).access_key_id == "A1"
    assert ending.for_uri(FILE).access_key_id == "A1"
    assert vending.count == 2
    clock.now += RETRY_AFTER_FAILED_REFRESH
    assert ending.for_uri(FILE).access_key_id == "A3"


def test_a_refresh_that_fails_too_late_is_an_error(vending: Vending, vended: VendedCredentials, clock: Clock) -> None:
    vended.for_uri(FILE)
    clock.advance(timedelta(hours=1))
    vending.failures = [PolarisUnavailable("away")]
    with pytest.raises(PolarisUnavailable):
        vended.for_uri(FILE)
    assert vended.for_uri(FILE).access_key_id == "A3"


def test_other_errors_of_a_refresh_are_raised(vending: Vending, ending: VendedCredentials) -> None:
    vending.failures = [NoSuchTable("dropped")]
    with pytest.raises(NoSuchTable):
        ending.for_uri(FILE)


def test_an_expired_vended_credential_is_refused(clock: Clock) -> None:
    vended = VendedCredentials(Vending(clock, lifetime=timedelta(seconds=-1)), clock=clock)
    with pytest.raises(CredentialVendingFailed, match="expired"):
        vended.for_uri(FILE)


def test_a_credential_that_the_store_refused_is_replaced_once(vending: Vending, vended: VendedCredentials) -> None:
    refused = vended.for_uri(FILE)
    with ThreadPoolExecutor(4) as pool:
        replaced = list(pool.map(lambda _: vended.replace(FILE, refused), range(4)))
    assert {new.access_key_id for new in replaced} == {"A2"}
    assert vending.count == 2


def test_the_loaded_table_is_returned_without_another_load(vending: Vending, vended: VendedCredentials) -> None:
    assert vended.table().location == "s3://lake/ns/orders"
    vended.for_uri(FILE)
    assert vending.count == 1


def test_a_table_that_was_just_loaded_saves_the_first_load(clock: Clock) -> None:
    def load() -> LoadedTable:
        raise AssertionError("loaded again")

    loaded = LoadedTable(
        TableIdentifier("c", ("n",), "t"), "s3://b/t/m.json", {}, {}, (S3Credential("s3://b/", "k", "s", "t", None),)
    )
    assert VendedCredentials(load, clock=clock, loaded=loaded).for_uri("s3://b/t/f").access_key_id == "k"


def test_a_renewal_that_finds_another_table_vends_nothing(
    vending: Vending, vended: VendedCredentials, clock: Clock
) -> None:
    """A table that was dropped and created again has the old location and may have taken its files."""
    refused = vended.for_uri(FILE)
    vending.table_uuid = "other"

    with pytest.raises(CredentialVendingFailed, match="another table"):
        vended.replace(FILE, refused)
    clock.advance(timedelta(hours=2))
    with pytest.raises(CredentialVendingFailed, match="another table"):
        vended.for_uri(FILE)

    # Its caller compares what a load returns.
    assert vended.load().table_uuid == "other"
    assert vended.for_uri(FILE).access_key_id == "A4"
