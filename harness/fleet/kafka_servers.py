"""Which Kafka brokers there are, and how one is let in: variables of the environment, and the client's properties.

The variables go by the names of librdkafka's properties. A combination of which a part would be ignored is refused:
who sets a password means it to be used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from harness.fleet.errors import InvalidSettingError

SERVERS = "localhost:9092"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CHECKS = ("https", "none")
_PROTOCOL, _MECHANISM = "KAFKA_SECURITY_PROTOCOL", "KAFKA_SASL_MECHANISM"
_USERNAME, _PASSWORD = "KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"
_CA, _CERTIFICATE = "KAFKA_SSL_CA_LOCATION", "KAFKA_SSL_CERTIFICATE_LOCATION"
_KEY, _KEY_PASSWORD = "KAFKA_SSL_KEY_LOCATION", "KAFKA_SSL_KEY_PASSWORD"
_CHECK = "KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM"
#: Each variable that is a property of the client's, as it is. The host name's check is one, but for its default.
PROPERTIES = {
    _MECHANISM: "sasl.mechanism",
    _USERNAME: "sasl.username",
    _PASSWORD: "sasl.password",
    _CA: "ssl.ca.location",
    _CERTIFICATE: "ssl.certificate.location",
    _KEY: "ssl.key.location",
    _KEY_PASSWORD: "ssl.key.password",
    _CHECK: "ssl.endpoint.identification.algorithm",
}
_NEEDED = {_MECHANISM: f"one of {', '.join(MECHANISMS)}", _USERNAME: "a name", _PASSWORD: "the password"}
_TOGETHER = ((_CERTIFICATE, _KEY), (_KEY, _CERTIFICATE), (_KEY_PASSWORD, _KEY))  # the first makes no sense alone


@attrs.frozen
class KafkaServers:
    """`bootstrap` as in `bootstrap.servers`. `security`: what is set of PROPERTIES, by the variables' names; `repr`
    shows none of it."""

    bootstrap: str = SERVERS
    protocol: str = "PLAINTEXT"
    security: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> KafkaServers:
        """Raises `InvalidSettingError`, which names the variable, and repeats no value but a protocol's. Files are
        looked at when a client is made."""
        protocol = environ.get(_PROTOCOL) or "PLAINTEXT"
        if protocol not in PROTOCOLS:
            raise InvalidSettingError(_PROTOCOL, f"is none of {', '.join(PROTOCOLS)}")
        security = {name: environ[name] for name in PROPERTIES if environ.get(name)}
        _refuse_idle(protocol, security)
        if protocol.startswith("SASL"):
            _refuse_missing(protocol, security)
        _refuse_other(security, _MECHANISM, MECHANISMS)
        _refuse_other(security, _CHECK, CHECKS)
        for name, other in _TOGETHER:
            if name in security and other not in security:
                raise InvalidSettingError(other, f"is not set, and {name} is; set both, or neither")
        return cls(environ.get("KAFKA_BOOTSTRAP_SERVERS") or SERVERS, protocol, security)

    def client(self) -> dict[str, Any]:
        """The client's properties."""
        properties = {PROPERTIES[name]: value for name, value in self.security.items()}
        return {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol.lower(), **properties}

    def weakness(self) -> tuple[str, str]:
        """What others could make use of, and how to mend it; two empty texts if there is nothing to say."""
        if self.protocol == "SASL_PLAINTEXT":
            return "the network can read the turns, and a password that is sent as it is", f"set {_PROTOCOL}=SASL_SSL"
        if self.security.get(_CHECK) == "none":
            return "any server with a certificate of that authority passes for a broker", f"unset {_CHECK}"
        return "", ""


def at_fault(text: str) -> InvalidSettingError | None:
    """The variable that the client blames, which names its property first, and may go on with a path."""
    for name, known in PROPERTIES.items():
        if known in text:
            return InvalidSettingError(name, "can't be used; see that the file is there, is PEM, and fits the others")
    return None


def _refuse_idle(protocol: str, security: Mapping[str, str]) -> None:
    for prefix, layer in (("sasl.", "SASL"), ("ssl.", "SSL")):
        idle = [name for name in security if PROPERTIES[name].startswith(prefix) and layer not in protocol]
        if idle:
            problem = f"is {protocol}, which has no use for {idle[0]}; choose SASL_SSL, or unset that"
            raise InvalidSettingError(_PROTOCOL, problem)


def _refuse_missing(protocol: str, security: Mapping[str, str]) -> None:
    for name, what in _NEEDED.items():
        if name not in security:
            raise InvalidSettingError(name, f"is not set; {_PROTOCOL}={protocol} needs {what}")


def _refuse_other(security: Mapping[str, str], name: str, known: tuple[str, ...]) -> None:
    if security.get(name, known[0]) not in known:
        raise InvalidSettingError(name, f"is none of {', '.join(known)}")
