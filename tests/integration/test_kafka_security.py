"""A Kafka broker that lets in whom it knows, over TLS: who gets in, and what those who don't are told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from harness.fleet.doctor import Standing, findings
from harness.fleet.errors import FleetBrokenError, FleetError, FleetUnavailableError, InvalidSettingError
from harness.fleet.kafka_servers import KafkaServers
from harness.fleet.transport.kafka import KafkaTransport
from tests.conformance.transport_rig import names, turn
from tests.kafka_queue import LIMIT_S, queue_at
from tests.kafka_secured import PASSWORD, USER, SecuredServer

PATIENCE_S = 2.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    made = SecuredServer(tmp_path_factory.mktemp("papers"))
    try:
        made.server.start()
        yield made
    finally:
        made.server.close()


def by_password(secured: SecuredServer, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    return {
        "KAFKA_BOOTSTRAP_SERVERS": secured.passwords,
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": mechanism,
        "KAFKA_SASL_USERNAME": USER,
        "KAFKA_SASL_PASSWORD": PASSWORD,
        "KAFKA_SSL_CA_LOCATION": secured.papers.certificate("ca"),
    }


def by_certificate(secured: SecuredServer, name: str = "client") -> dict[str, str]:
    return {
        "KAFKA_BOOTSTRAP_SERVERS": secured.certificates,
        "KAFKA_SECURITY_PROTOCOL": "SSL",
        "KAFKA_SSL_CA_LOCATION": secured.papers.certificate("ca"),
        "KAFKA_SSL_CERTIFICATE_LOCATION": secured.papers.certificate(name),
        "KAFKA_SSL_KEY_LOCATION": secured.papers.key(name),
    }


def opened(environ: dict[str, str]) -> KafkaTransport:
    return KafkaTransport(queue_at(KafkaServers.of(environ), 2, patience_s=PATIENCE_S))


def works(environ: dict[str, str]) -> None:
    """Admin client, producer and consumer are let in."""
    transport = opened(environ)
    try:
        assert transport.put_many([turn("a")], 10) == (True,)
        (delivery,) = transport.receive(1, LIMIT_S)
        assert names((delivery,)) == ["a"]
        assert transport.acknowledge([delivery.receipt]) == (None,)
        assert transport.depth() == 0
    finally:
        transport.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_has_the_password_gets_in(secured: SecuredServer, mechanism: str) -> None:
    works(by_password(secured, mechanism))


def test_who_has_a_certificate_gets_in(secured: SecuredServer) -> None:
    works(by_certificate(secured))


def test_a_host_name_that_is_not_the_certificates_passes_if_it_is_not_looked_at(secured: SecuredServer) -> None:
    environ = elsewhere(by_password(secured))
    works(environ | {"KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "none"})


def elsewhere(environ: dict[str, str]) -> dict[str, str]:
    """By an address that the certificate does not have."""
    address = environ["KAFKA_BOOTSTRAP_SERVERS"].replace("localhost", "127.0.0.1")
    return environ | {"KAFKA_BOOTSTRAP_SERVERS": address}


def refused(environ: dict[str, str], capfd: pytest.CaptureFixture[str]) -> FleetError:
    """What is told, which is one line, and nothing of what only the user should know."""
    with pytest.raises(FleetError) as told:
        opened(environ).close()
    said = str(told.value) + capfd.readouterr().err
    assert "\n" not in said
    assert not [word for word in (PASSWORD, "mellon", USER, "localhost", "127.0.0.1", "/") if word in said], said
    return told.value


def test_a_wrong_password_is_told(secured: SecuredServer, capfd: pytest.CaptureFixture[str]) -> None:
    told = refused(by_password(secured) | {"KAFKA_SASL_PASSWORD": "mellon"}, capfd)
    assert isinstance(told, FleetBrokenError)
    assert "check KAFKA_SASL_MECHANISM, KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD" in str(told)


def test_a_server_that_goes_by_another_name_is_not_spoken_to(
    secured: SecuredServer, capfd: pytest.CaptureFixture[str]
) -> None:
    told = refused(elsewhere(by_password(secured)), capfd)
    assert isinstance(told, FleetUnavailableError)
    assert "names" in str(told)


def test_a_server_whose_certificate_nobody_vouches_for_is_not_spoken_to(
    secured: SecuredServer, capfd: pytest.CaptureFixture[str]
) -> None:
    told = refused(by_password(secured) | {"KAFKA_SSL_CA_LOCATION": secured.papers.certificate("stranger")}, capfd)
    assert "KAFKA_SSL_CA_LOCATION" in str(told)


@pytest.mark.parametrize("name", ["", "stranger"])
def test_who_has_no_certificate_or_a_strangers_is_told(
    secured: SecuredServer, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    environ = by_certificate(secured, name or "client")
    if not name:
        del environ["KAFKA_SSL_CERTIFICATE_LOCATION"], environ["KAFKA_SSL_KEY_LOCATION"]
    assert "whose names the certificates have" in str(refused(environ, capfd))


def test_who_speaks_tls_where_there_is_none_is_told(secured: SecuredServer, capfd: pytest.CaptureFixture[str]) -> None:
    told = refused(by_password(secured) | {"KAFKA_BOOTSTRAP_SERVERS": secured.server.bootstrap}, capfd)
    assert "check KAFKA_SECURITY_PROTOCOL" in str(told)


@pytest.mark.parametrize("name", ["KAFKA_SSL_CA_LOCATION", "KAFKA_SSL_CERTIFICATE_LOCATION", "KAFKA_SSL_KEY_LOCATION"])
@pytest.mark.parametrize("file", ["missing.pem", "store.txt"])
def test_a_file_that_is_none_is_told_by_its_variable(
    secured: SecuredServer, name: str, file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (secured.papers.folder / "store.txt").write_text("no PEM\n")
    told = refused(by_certificate(secured) | {name: str(secured.papers.folder / file)}, capfd)
    assert isinstance(told, InvalidSettingError)
    assert told.name == name


def test_a_key_of_another_certificate_is_told(secured: SecuredServer, capfd: pytest.CaptureFixture[str]) -> None:
    told = refused(by_certificate(secured) | {"KAFKA_SSL_KEY_LOCATION": secured.papers.key("stranger")}, capfd)
    assert isinstance(told, InvalidSettingError)
    assert told.name == "KAFKA_SSL_KEY_LOCATION"


def test_a_restart_ends_the_member_whose_password_is_another_by_now_and_no_other(secured: SecuredServer) -> None:
    """A server that is not yet back refuses nobody for good."""
    leaver = "leaver"
    admin = AdminClient({"bootstrap.servers": secured.server.bootstrap, "log_level": 0})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    let_in, shut_out = (UserScramCredentialUpsertion(leaver, info, word.encode()) for word in (PASSWORD, "mellon"))
    admin.alter_user_scram_credentials([let_in])[leaver].result(LIMIT_S)
    with contextlib.ExitStack() as after:
        staying, leaving = (
            after.enter_context(contextlib.closing(opened(by_password(secured) | more)))
            for more in ({}, {"KAFKA_SASL_USERNAME": leaver})
        )
        for transport in (staying, leaving):
            assert transport.put_many([turn("before")], 10) == (True,)
            (before,) = transport.receive(1, LIMIT_S)
            assert transport.acknowledge([before.receipt]) == (None,)
        admin.alter_user_scram_credentials([shut_out])[leaver].result(LIMIT_S)
        secured.server.crash()
        secured.server.start()
        assert staying.put_many([turn("after")], 10) == (True,)
        assert names(staying.receive(1, LIMIT_S)) == ["after"]
        with pytest.raises(FleetBrokenError, match="it refuses who we are"):
            while True:
                with contextlib.suppress(FleetUnavailableError):
                    leaving.receive(1, 1.0)


def test_the_doctor_says_what_is_wrong_with_who_we_are(secured: SecuredServer, tmp_path: Path) -> None:
    environ = by_password(secured) | {"STATE_DB_URI": f"sqlite:///{tmp_path / 'state.db'}"}
    environ |= {"TASK_QUEUE_BACKEND": "kafka", "AGENT_TURNS_PARTITIONS": "1"}
    for password, standing in ((PASSWORD, Standing.OK), ("mellon", Standing.FAIL)):
        found = {each.name: each for each in findings(environ | {"KAFKA_SASL_PASSWORD": password})}
        assert found["transport"].standing is standing, found
        assert not [word for word in (PASSWORD, "mellon", USER, str(tmp_path)) if word in str(found)], found
    assert "KAFKA_SASL_PASSWORD" in found["transport"].says
