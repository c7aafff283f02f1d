"""Settings name the variable at fault and end with exit code 2; figures that contradict each other don't start."""

from __future__ import annotations

import pytest

from slackwater.errors import SettingsError
from slackwater.redis_client import redis_client
from slackwater.settings import Constants, StoreSettings, load
from slackwater.store.url import driver_url, plain_url


def test_the_defaults_are_the_protocols_figures_and_consistent() -> None:
    constants = Constants()

    assert (constants.lease_seconds, constants.renew_seconds, constants.slot_seconds) == (45, 15, 60)
    assert (constants.trust_seconds, constants.candidate_age_seconds, constants.marker_age_seconds) == (35, 30, 45)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLACKWATER_RENEW_SECONDS", "15.1"),
        ("SLACKWATER_TRUST_SECONDS", "45"),
        ("SLACKWATER_TRUST_SECONDS", "15"),
        ("SLACKWATER_SLOT_SECONDS", "45"),
        ("SLACKWATER_SLOT_SILENCE_SECONDS", "45"),
        ("SLACKWATER_CANDIDATE_AGE_SECONDS", "45"),
        ("SLACKWATER_MARKER_AGE_SECONDS", "60"),
        ("SLACKWATER_SWEEP_TOUCH_SECONDS", "15.1"),
        ("SLACKWATER_FAILOVER_PAUSE_SECONDS", "44"),
        ("SLACKWATER_EXPIRY_GAP_SECONDS", "5"),
        ("SLACKWATER_LEASE_SECONDS", "0"),
        ("SLACKWATER_LEASE_SECONDS", "inf"),
        ("SLACKWATER_LEASE_SECONDS", "soon"),
        ("SLACKWATER_INTERRUPTION_CAP", "0"),
    ],
)
def test_an_impossible_figure_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(SettingsError) as caught:
        load(Constants)
    assert caught.value.setting == name
    assert caught.value.exit_code == 2


def test_missing_servers_are_named_and_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "DATABASE_DIRECT_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="DATABASE_URL"):
        load(StoreSettings)
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:secret@db/x")
    monkeypatch.setenv("REDIS_URL", "redis://:secret@cache")
    settings = load(StoreSettings)

    assert "secret" not in repr(settings)
    assert settings.listen_url == "postgresql://u:secret@db/x"
    monkeypatch.setenv("DATABASE_DIRECT_URL", "postgresql://direct/x")
    assert load(StoreSettings).listen_url == "postgresql://direct/x"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+asyncpg"])
def test_any_spelling_of_a_postgresql_url_gets_the_one_driver(scheme: str) -> None:
    url = f"{scheme}://u:p%40ss@db:5432/x?sslmode=require"

    assert driver_url(url).drivername == "postgresql+psycopg"
    assert plain_url(url) == "postgresql://u:p%40ss@db:5432/x?sslmode=require"


@pytest.mark.parametrize("url", ["mysql://db/x", "sqlite://", "nonsense", ""])
def test_another_database_is_a_settings_error_without_the_url_in_it(url: str) -> None:
    with pytest.raises(SettingsError, match="DATABASE_URL") as caught:
        driver_url(url)
    assert not url or url not in str(caught.value)


@pytest.mark.parametrize("url", ["http://cache", "redis+sentinel://a,b", "redis+sentinel:///master"])
def test_another_kind_of_cache_is_a_settings_error(url: str) -> None:
    with pytest.raises(SettingsError, match="REDIS_URL"):
        redis_client(url)


async def test_the_coordination_client_retries_nothing_and_waits_no_longer_than_two_seconds() -> None:
    for url in ("redis://cache:6379/3", "unix:///run/redis.sock", "redis+sentinel://u:p@a:1,b/master/3"):
        client = redis_client(url)
        made = client.connection_pool.connection_kwargs
        assert made["retry"].get_retries() == 0
        assert made["socket_timeout"] == 2
        assert int(made.get("db", 3)) == 3 or url.startswith("unix")
        await client.aclose()
