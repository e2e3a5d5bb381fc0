"""`delegation.notifications.*`: off by default, and no wrong value is accepted or quoted if it may hold a secret."""

from datetime import timedelta

import pytest

from delegation.tasks.life.notifications import NotificationPolicy
from delegation.tasks.life.policy import InvalidProperty, Policies
from infra.environment.context import default_properties

PREFIX = "delegation.notifications."
URL = "https://catalog.internal:8443/hooks/7?token=s3cr3t"


def policies(**properties):
    named = {PREFIX + name.replace("_", "-").replace("--", "."): value for name, value in properties.items()}
    return Policies.from_properties(named)


def test_nothing_is_owed_by_default():
    policy = Policies.from_properties(default_properties_of_tasks()).notifications
    assert policy == NotificationPolicy()
    assert not policy.is_on
    assert policies().channels() == policies().channels(None) == ()


def default_properties_of_tasks():
    others = ("delegation.drop.", "delegation.purge.", "delegation.upkeep.", "polaris.idempotency.")
    return {name: value for name, value in default_properties().items() if not name.startswith(others)}


def test_all_settings():
    backoffs = {"initial_backoff_duration": "5m", "max_backoff_duration": "2h"}
    found = policies(events="true", callback__catalog=URL, private_addresses="true", max_attempts="3", **backoffs)
    expected = NotificationPolicy(
        events=True,
        callbacks={"catalog": URL},
        private_addresses=True,
        max_attempts=3,
        initial_backoff=timedelta(minutes=5),
        max_backoff=timedelta(hours=2),
    )
    assert found.notifications == expected
    assert found.channels("catalog") == ("event", "callback:catalog")
    assert "s3cr3t" not in repr(found.notifications)
    assert policies(callback__catalog=URL).channels() == ()


WRONG: dict[str, tuple[str, ...]] = {
    "events": ("yes",),
    "private-addresses": ("1",),
    "max-attempts": ("0", "10000"),
    "initial-backoff-duration": ("soon",),
    "max-backoff-duration": ("1s",),
    "callback.": (URL,),
    "callback.Catalog": (URL,),
    "callback.a/b": (URL,),
    "callback.catalog": (
        "http://catalog.internal/hook?token=s3cr3t",
        "https:///hook?token=s3cr3t",
        "https://user:s3cr3t@catalog.internal/hook",
        "https://catalog.internal/hook#s3cr3t",
        "https://catalog.internal/ho ok?token=s3cr3t",
        "https://catalog.internal/h\u00f6ok?token=s3cr3t",
        "https://catalog.internal:99999/hook?token=s3cr3t",
        "https://[catalog/hook?token=s3cr3t",
        "https://catalog.internal/" + "s3cr3t" * 400,
    ),
    "target": (URL,),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_setting_is_refused_by_name(name, value):
    with pytest.raises(InvalidProperty, match=r"delegation\.notifications") as refused:
        Policies.from_properties({PREFIX + name: value})
    assert "s3cr3t" not in str(refused.value)
