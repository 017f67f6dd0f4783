"""The fleet's settings: what the environment may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.fleet.errors import InvalidSettingError
from harness.fleet.kafka_servers import KafkaServers
from harness.fleet.settings import FleetSettings, problems

PG = "postgresql://somebody:secret@server/db"


def test_without_a_word_everything_is_local() -> None:
    settings = FleetSettings.of({})
    assert (settings.backend, settings.max_depth, settings.claim_ttl_s, settings.renew_interval_s) == (
        "sqlite", 10_000, 120.0, 30.0,
    )  # fmt: skip
    assert settings.state_db_uri.startswith("sqlite:///")
    assert settings.queue_uri.startswith("sqlite:///")
    assert settings.state_db_uri == settings.queue_uri, "one file"
    assert FleetSettings.of({"STATE_DB_URI": PG}).queue_uri.startswith("sqlite:///")


def test_a_file_that_is_named_twice_is_one_however_it_is_spelled(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    state, queue = (f"sqlite:///{tmp_path}/{name}/fleet.db" for name in ("folder", "link/../folder"))
    for given in (state, queue, f"sqlite:///{tmp_path}/link/fleet.db"):
        assert FleetSettings.of({"STATE_DB_URI": state, "TASK_QUEUE_URI": given}).is_one_database
    other = f"sqlite:///{tmp_path}/folder/queue.db"
    assert not FleetSettings.of({"STATE_DB_URI": state, "TASK_QUEUE_URI": other}).is_one_database


def test_what_is_empty_has_its_default() -> None:
    names = ("TASK_QUEUE_BACKEND", "STATE_DB_URI", "AGENT_DISPATCH_MAX_DEPTH", "AGENT_DISPATCH_CLAIM_TTL_S")
    assert FleetSettings.of(dict.fromkeys(names, "")) == FleetSettings.of({})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"STATE_DB_URI": PG, "TASK_QUEUE_BACKEND": "postgres"}, {"state_db_uri": PG, "queue_uri": PG}),
        (
            {"STATE_DB_URI": PG, "TASK_QUEUE_URI": "postgres://other/q", "TASK_QUEUE_BACKEND": "postgres"},
            {"queue_uri": "postgres://other/q"},
        ),
        ({"TASK_QUEUE_URI": "sqlite:////q.db"}, {"queue_uri": "sqlite:////q.db"}),
        (
            {"TASK_QUEUE_BACKEND": "kafka", "KAFKA_BOOTSTRAP_SERVERS": "a:1,b:2", "AGENT_TURNS_PARTITIONS": "3"},
            {"kafka_servers": KafkaServers("a:1,b:2"), "partitions": 3, "queue_uri": ""},
        ),
        ({"AGENT_DISPATCH_MAX_DEPTH": " 7 "}, {"max_depth": 7}),
        ({"AGENT_DISPATCH_KEEP_DAYS": "0.5"}, {"keep_days": 0.5}),
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "300", "AGENT_DISPATCH_RENEW_INTERVAL_S": "100"}, {"renew_interval_s": 100.0}),
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "1.5"}, {"claim_ttl_s": 1.5, "renew_interval_s": 0.5}),
    ],
)
def test_what_is_said_counts(environ: dict[str, str], expected: dict[str, object]) -> None:
    settings = FleetSettings.of(environ)
    assert {name: getattr(settings, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"TASK_QUEUE_BACKEND": "redis"}, "TASK_QUEUE_BACKEND"),
        ({"TASK_QUEUE_BACKEND": "postgres"}, "STATE_DB_URI"),
        ({"TASK_QUEUE_BACKEND": "postgres", "STATE_DB_URI": "sqlite:///x"}, "STATE_DB_URI"),
        ({"TASK_QUEUE_BACKEND": "postgres", "STATE_DB_URI": PG, "TASK_QUEUE_URI": "sqlite:///x"}, "TASK_QUEUE_URI"),
        ({"TASK_QUEUE_URI": PG}, "TASK_QUEUE_URI"),
        ({"TASK_QUEUE_URI": "sqlite:///relative.db"}, "TASK_QUEUE_URI"),
        ({"STATE_DB_URI": "sqlite:///relative.db"}, "STATE_DB_URI"),
        ({"STATE_DB_URI": "mysql://secret@server"}, "STATE_DB_URI"),
        ({"AGENT_DISPATCH_MAX_DEPTH": "0"}, "AGENT_DISPATCH_MAX_DEPTH"),
        ({"AGENT_DISPATCH_MAX_DEPTH": "many"}, "AGENT_DISPATCH_MAX_DEPTH"),
        ({"AGENT_DISPATCH_MAX_DEPTH": "1.5"}, "AGENT_DISPATCH_MAX_DEPTH"),
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "301"}, "AGENT_DISPATCH_CLAIM_TTL_S"),
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "0.5"}, "AGENT_DISPATCH_CLAIM_TTL_S"),
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "nan"}, "AGENT_DISPATCH_CLAIM_TTL_S"),
        ({"AGENT_DISPATCH_RENEW_INTERVAL_S": "41"}, "AGENT_DISPATCH_RENEW_INTERVAL_S"),
        (
            {"AGENT_DISPATCH_CLAIM_TTL_S": "60", "AGENT_DISPATCH_RENEW_INTERVAL_S": "20.5"},
            "AGENT_DISPATCH_RENEW_INTERVAL_S",
        ),
        ({"AGENT_TURNS_PARTITIONS": "-1"}, "AGENT_TURNS_PARTITIONS"),
        ({"AGENT_DISPATCH_KEEP_DAYS": "-1"}, "AGENT_DISPATCH_KEEP_DAYS"),
    ],
)
def test_what_can_not_be_is_refused_by_its_name(environ: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"^{name}: ") as refused:
        FleetSettings.of(environ)
    assert refused.value.name == name
    assert "secret" not in str(refused.value)


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(FleetSettings.of({"STATE_DB_URI": PG, "TASK_QUEUE_BACKEND": "postgres"}))


def test_what_is_wrong_is_told_once() -> None:
    wrong = {"TASK_QUEUE_BACKEND": "postgres", "STATE_DB_URI": "sqlite:////s", "AGENT_DISPATCH_MAX_DEPTH": "0"}
    assert [problem.name for problem in problems(wrong)] == ["STATE_DB_URI"]
    assert [problem.name for problem in problems(wrong | {"STATE_DB_URI": PG})] == ["AGENT_DISPATCH_MAX_DEPTH"]


SASL = {
    "TASK_QUEUE_BACKEND": "kafka",
    "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "KAFKA_SASL_USERNAME": "ada",
    "KAFKA_SASL_PASSWORD": "secret",
}
TLS = {
    "TASK_QUEUE_BACKEND": "kafka",
    "KAFKA_SECURITY_PROTOCOL": "SSL",
    "KAFKA_SSL_CERTIFICATE_LOCATION": "/home/ada/c.pem",
    "KAFKA_SSL_KEY_LOCATION": "/home/ada/c.key",
    "KAFKA_SSL_KEY_PASSWORD": "secret",
}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {"security.protocol": "plaintext"}),
        (
            SASL | {"KAFKA_SSL_CA_LOCATION": "/ca.pem"},
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "ada",
                "sasl.password": "secret",
                "ssl.ca.location": "/ca.pem",
            },
        ),
        (
            TLS | {"KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "none"},
            {
                "security.protocol": "ssl",
                "ssl.certificate.location": "/home/ada/c.pem",
                "ssl.key.location": "/home/ada/c.key",
                "ssl.key.password": "secret",
                "ssl.endpoint.identification.algorithm": "none",
            },
        ),
    ],
)
def test_kafkas_client_is_told_what_is_said(environ: dict[str, str], expected: dict[str, str]) -> None:
    settings = FleetSettings.of({"TASK_QUEUE_BACKEND": "kafka"} | environ)
    assert settings.kafka_servers.client() == {"bootstrap.servers": "localhost:9092"} | expected
    assert not any(word in repr(settings) for word in ("ada", "secret", "/ca.pem"))


@pytest.mark.parametrize(
    ("environ", "name", "words"),
    [
        (SASL | {"KAFKA_SECURITY_PROTOCOL": "SASL"}, "KAFKA_SECURITY_PROTOCOL", "is none of PLAINTEXT, SSL, "),
        (SASL | {"KAFKA_SECURITY_PROTOCOL": ""}, "KAFKA_SECURITY_PROTOCOL", "no use for KAFKA_SASL_MECHANISM"),
        (
            SASL | {"KAFKA_SECURITY_PROTOCOL": "SSL"},
            "KAFKA_SECURITY_PROTOCOL",
            "is SSL, which has no use for KAFKA_SASL",
        ),
        (TLS | {"KAFKA_SECURITY_PROTOCOL": ""}, "KAFKA_SECURITY_PROTOCOL", "no use for KAFKA_SSL_CERTIFICATE_LOCATION"),
        (
            SASL | {"KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "KAFKA_SSL_CA_LOCATION": "/home/ada/ca"},
            "KAFKA_SECURITY_PROTOCOL",
            "no use for KAFKA_SSL_CA_LOCATION",
        ),
        (SASL | {"KAFKA_SASL_MECHANISM": ""}, "KAFKA_SASL_MECHANISM", "SASL_SSL needs one of PLAIN, SCRAM-SHA-256, "),
        (SASL | {"KAFKA_SASL_MECHANISM": "GSSAPI"}, "KAFKA_SASL_MECHANISM", "is none of PLAIN, SCRAM-SHA-256, "),
        (SASL | {"KAFKA_SASL_USERNAME": ""}, "KAFKA_SASL_USERNAME", "is not set"),
        (SASL | {"KAFKA_SASL_PASSWORD": ""}, "KAFKA_SASL_PASSWORD", "is not set"),
        (TLS | {"KAFKA_SSL_KEY_LOCATION": ""}, "KAFKA_SSL_KEY_LOCATION", "KAFKA_SSL_CERTIFICATE_LOCATION is; set both"),
        (TLS | {"KAFKA_SSL_CERTIFICATE_LOCATION": ""}, "KAFKA_SSL_CERTIFICATE_LOCATION", "KAFKA_SSL_KEY_LOCATION is"),
        (
            TLS | {"KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "off"},
            "KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM",
            "is none of https, none",
        ),
    ],
)
def test_what_would_not_do_what_it_says_is_refused(environ: dict[str, str], name: str, words: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"^{name}: ") as refused:
        FleetSettings.of(environ)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not any(word in str(refused.value) for word in ("/home", "secret"))
    assert problems(environ)[0].name == name


def test_what_others_say_of_their_kafka_is_nothing_to_another_transport() -> None:
    assert FleetSettings.of(SASL | {"TASK_QUEUE_BACKEND": "", "KAFKA_SECURITY_PROTOCOL": "x"}) == FleetSettings.of({})
