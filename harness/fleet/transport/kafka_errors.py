"""What Kafka's errors mean to the fleet. Names of errors are told, never their texts: those name hosts."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from harness.fleet.errors import FleetBrokenError, FleetError, FleetUnavailableError

_STRANGER = "it refuses who we are; check KAFKA_SASL_MECHANISM, KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD"
#: What trying again does not mend, and what does. All else is taken to pass.
_WAYS_OUT = {
    KafkaError.SASL_AUTHENTICATION_FAILED: _STRANGER,
    KafkaError._AUTHENTICATION: _STRANGER,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the topic is not open to us; grant READ, WRITE and DESCRIBE on it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the consumer group is not open to us; grant READ on it",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "we may not make the topic; make it, or grant CREATE and ALTER",
    KafkaError.UNSUPPORTED_VERSION: "it is too old; Kafka 2.8 or newer is needed",
    KafkaError._UNSUPPORTED_FEATURE: "it is too old; Kafka 2.8 or newer is needed",
    KafkaError.FENCED_INSTANCE_ID: "others have the same KAFKA_GROUP_INSTANCE_ID; give each its own",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "other programs are in the consumer group; leave it to the workers",
    KafkaError.INVALID_SESSION_TIMEOUT: "it does not allow our session timeout; see group.min.session.timeout.ms",
    KafkaError.INVALID_REPLICATION_FACTOR: "it has too few brokers for the topic's replication; start more",
    KafkaError.POLICY_VIOLATION: "its policy does not allow the topic; make it by hand",
    # That is what a static member meets when another comes by its name; the client tells no more than that it is over.
    KafkaError._FATAL: "start the worker again; if others have the same KAFKA_GROUP_INSTANCE_ID, give each its own",
    KafkaError._INVALID_ARG: "a setting is not known to this version of confluent-kafka; install a newer one",
}
_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
#: Those that the broker has no record of, or never will have.
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
#: A cluster that is about to know: who leads a partition that is new, who coordinates a group.
_SETTLING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    *_NO_TOPIC,  # of one that there is: it was asked for before
)


def is_settling(error: KafkaError) -> bool:
    """Whether a cluster that tells of the topic, and says this, may say something else in a moment."""
    return error.code() in _SETTLING


def is_lasting(error: KafkaError) -> bool:
    """Whether a client that met it has to be made anew, at least."""
    return error.fatal() or error.code() in _WAYS_OUT


def is_missing(error: KafkaError) -> bool:
    """Whether it says that there is no such topic."""
    return error.code() in _NO_TOPIC


def reason(error: BaseException) -> KafkaError:
    """What a `KafkaException` carries."""
    assert isinstance(error, KafkaException), error
    found = error.args[0]
    assert isinstance(found, KafkaError), found
    return found


def telling(error: KafkaError) -> FleetError | None:
    """What kept a client from being let in, if it is that. A server that hangs up at our TLS is told by the text."""
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        return meaning(error)
    text = error.str() or ""
    if error.code() == KafkaError._SSL or "SSL handshake" in text or "SSL alert" in text:
        problem = "check KAFKA_SECURITY_PROTOCOL, KAFKA_SSL_CA_LOCATION, and whose names the certificates have"
        return FleetUnavailableError(f"Kafka is out of reach ({error.name()}): no TLS with it; {problem}")
    return None


def meaning(error: KafkaError) -> FleetError:
    """As an error of the port."""
    name = error.name()
    if error.code() in _WAYS_OUT:
        return FleetBrokenError(f"Kafka says {name}: {_WAYS_OUT[error.code()]}")
    if is_missing(error):
        return FleetBrokenError(f"Kafka says {name}: the topic is gone; start the worker again to make it anew")
    if error.code() in _TOO_LARGE:
        return FleetBrokenError(f"Kafka says {name}: raise the topic's max.message.bytes to 64 KiB or more")
    if error.fatal():
        return FleetBrokenError(f"Kafka says {name}, and the client can't go on; start the worker again")
    return FleetUnavailableError(f"Kafka is out of reach ({name}); what was asked may or may not have happened")
