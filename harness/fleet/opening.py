"""From the settings to what they name. What a backend needs is imported when it is chosen, and only then."""

from __future__ import annotations

import attrs

from harness.fleet.errors import InvalidSettingError
from harness.fleet.ports import Authority, Joint, Transport
from harness.fleet.queue import TurnQueue
from harness.fleet.settings import FleetSettings

#: For how long a worker may be silent to Kafka before its partitions are another's: as long as a lease, within what
#: brokers take by default.
SHORTEST_SESSION_S, LONGEST_SESSION_S = 6.0, 30.0


@attrs.frozen(eq=False)
class Fleet:
    """An authority and a transport that belong together. To be closed."""

    settings: FleetSettings
    authority: Authority
    transport: Transport

    @property
    def queue(self) -> TurnQueue:
        """For submitting. Each has notes of its own to `flush`."""
        return TurnQueue(self.authority, self.transport, self.settings.max_depth, joint=self.joint)

    @property
    def joint(self) -> Joint | None:
        """For a worker, if the two are one database."""
        if not self.settings.is_one_database:
            return None
        if self.settings.backend == "sqlite":
            from harness.fleet.authority.sqlite import SqliteWorkItems
            from harness.fleet.sqlite_joint import SqliteJoint
            from harness.fleet.transport.sqlite import SqliteTransport

            assert isinstance(self.authority, SqliteWorkItems) and isinstance(self.transport, SqliteTransport)
            return SqliteJoint(self.authority, self.transport)
        from harness.fleet.authority.postgres import PostgresWorkItems
        from harness.fleet.postgres_joint import PostgresJoint
        from harness.fleet.transport.postgres import PostgresTransport

        assert isinstance(self.authority, PostgresWorkItems) and isinstance(self.transport, PostgresTransport)
        return PostgresJoint(self.authority, self.transport)

    def close(self) -> None:
        self.transport.close()
        self.authority.close()


def open_fleet(settings: FleetSettings) -> Fleet:
    """Raises `InvalidSettingError`, `FleetUnavailableError`, `FleetBrokenError`: there is no way around a backend that
    was asked for."""
    authority = open_authority(settings)
    try:
        return Fleet(settings, authority, open_transport(settings))
    except BaseException:
        authority.close()
        raise


def open_authority(settings: FleetSettings) -> Authority:
    from harness.fleet.authority.url import open_work_items

    return open_work_items(settings.state_db_uri)


def open_transport(settings: FleetSettings) -> Transport:
    """A receiver is taken to be gone when its leases are: it says that it is there whenever it renews them."""
    match settings.backend:
        case "postgres":
            from harness.fleet.transport.postgres import PostgresTransport

            return PostgresTransport(settings.queue_uri, visibility_s=settings.claim_ttl_s)
        case "kafka":
            return _kafka(settings)
        case _:
            from harness.fleet.authority.sqlite_file import FILE
            from harness.fleet.transport.sqlite import SqliteTransport
            from harness.fleet.transport.sqlite_file import QUEUE

            path = settings.queue_uri.removeprefix("sqlite:///")
            kind = FILE if settings.is_one_database else QUEUE
            return SqliteTransport(path, visibility_s=settings.claim_ttl_s, kind=kind)


def _kafka(settings: FleetSettings) -> Transport:
    try:
        from harness.fleet.transport.kafka import KafkaQueue, KafkaTransport
    except ImportError as missing:
        problem = "is kafka, which needs confluent-kafka: install slice-dispatch[kafka]"
        raise InvalidSettingError("TASK_QUEUE_BACKEND", problem) from missing
    session_s = min(LONGEST_SESSION_S, max(SHORTEST_SESSION_S, settings.claim_ttl_s))
    queue = KafkaQueue(
        settings.kafka_servers, settings.partitions, instance=settings.kafka_instance, session_s=session_s
    )
    return KafkaTransport(queue)
