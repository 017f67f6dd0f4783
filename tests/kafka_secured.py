"""A Kafka broker that lets in whom it knows: a listener for passwords and one for certificates, both with TLS.

Keys and certificates are made by the machine's openssl, of elliptic curves, which takes no time.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import attrs

from tests.kafka_server import KafkaServer, free_ports, program

USER, PASSWORD = "grombold", "s3cr3t-of-the-tests"
_LIMIT_S = 20.0
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


@attrs.frozen
class Papers:
    """In a folder: `<name>.pem`, a certificate, and `<name>.key`. `ca` signs; `stranger` is a CA that nobody knows."""

    folder: Path

    def make(self) -> None:
        for name in ("ca", "stranger"):
            self._sign(name, ("-subj", f"/CN={name}"))
        for name, host in (("broker", "DNS:localhost"), ("client", "DNS:client")):
            signed = ("-CA", self.certificate("ca"), "-CAkey", self.key("ca"), "-addext", f"subjectAltName={host}")
            self._sign(name, ("-subj", f"/CN={name}", *signed))
        store = Path(self.key("broker")).read_text() + Path(self.certificate("broker")).read_text()
        (self.folder / "store.pem").write_text(store)

    def certificate(self, name: str) -> str:
        return str(self.folder / f"{name}.pem")

    def key(self, name: str) -> str:
        return str(self.folder / f"{name}.key")

    def _sign(self, name: str, options: tuple[str, ...]) -> None:
        to = ("-keyout", self.key(name), "-out", self.certificate(name))
        command = [program("openssl"), "req", "-x509", *_CURVE, *to, *options]
        made = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        assert made.returncode == 0, made.stderr


class SecuredServer:
    """The broker's certificate is for `localhost`, and not for 127.0.0.1. `passwords` and `certificates` are the
    addresses of the two listeners."""

    def __init__(self, folder: Path) -> None:
        self.papers = Papers(folder)
        self.papers.make()
        passwords, certificates = free_ports(2)
        self.passwords, self.certificates = f"localhost:{passwords}", f"localhost:{certificates}"
        ways = {"PASSWORDS": self.passwords, "CERTIFICATES": self.certificates}
        listeners = {name: (address, address) for name, address in ways.items()}
        users = [f"SCRAM-SHA-{bits}=[name={USER},password={PASSWORD}]" for bits in (256, 512)]
        self.server = KafkaServer(listeners, users, **self._settings())

    def _settings(self) -> dict[str, str]:
        security = {"PASSWORDS": "SASL_SSL", "CERTIFICATES": "SSL", "PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        modules = "org.apache.kafka.common.security"
        of_passwords, of_certificates = "listener.name.passwords.", "listener.name.certificates."
        scram = f"{modules}.scram.ScramLoginModule required;"
        return {
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in security.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.papers.certificate("store"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.papers.certificate("ca"),
            f"{of_certificates}ssl.client.auth": "required",
            f"{of_passwords}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{of_passwords}plain.sasl.jaas.config": (
                f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
            f"{of_passwords}scram-sha-256.sasl.jaas.config": scram,
            f"{of_passwords}scram-sha-512.sasl.jaas.config": scram,
        }
