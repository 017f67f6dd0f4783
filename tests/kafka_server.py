"""A real Apache Kafka broker for tests: one node that is broker and controller, in a temporary folder, on loopback.

Its jars are those that `tests/kafka/pom.xml` names; Maven copies them once into the user's cache folder. It runs on the
machine's Java, keeps what it has through any number of restarts, and ends when whoever started it ends. The tests of a
run share one, also between the workers of pytest-xdist; those that restart it make one of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import platformdirs
from confluent_kafka import Consumer, KafkaException, TopicPartition

LIMIT_S = 40.0
JAVA = 17  #: the oldest that Kafka 4 runs on
_CACHE = platformdirs.user_cache_path("slice-dispatch") / "tests"
_SHARED = _CACHE / "kafka-shared.lock"
_POM = Path(__file__).parent / "kafka" / "pom.xml"
NEEDED = (
    f"the Kafka tests need Java {JAVA} or newer and Maven on the PATH, and openssl "
    "(Debian: apt-get install default-jdk maven openssl)"
)
_FETCH_LIMIT_S = 100.0
#: Where no outgoing connection gets its port from, so that the broker finds its own free when it starts again.
_PORTS = range(20_000, 32_000)


def is_possible() -> bool:
    """Whether there is a broker to use, or what one runs on."""
    return bool(os.environ.get("KAFKA_BOOTSTRAP_SERVERS")) or all(map(shutil.which, ("java", "mvn", "openssl")))


def program(name: str) -> str:
    """Where it is. Fails in one line if it is missing."""
    found = shutil.which(name)
    assert found is not None, f"no {name} here: {NEEDED}"
    return found


def jars() -> Path:
    """The folder of the broker's jars: fetched by the first who asks, while others wait."""
    folder = _CACHE / f"kafka-{hashlib.sha256(_POM.read_bytes()).hexdigest()[:16]}"
    with _locked(_CACHE / "kafka-jars.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=_CACHE) as made:
                _fetch(Path(made) / "jars")
                (Path(made) / "jars").rename(folder)
    return folder


def _fetch(folder: Path) -> None:
    goal = "dependency:copy-dependencies"
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    fetched = subprocess.run(
        [program("mvn"), "--quiet", "--batch-mode", "--file", _POM, goal, *options],
        capture_output=True,
        text=True,
        timeout=_FETCH_LIMIT_S,
        check=False,
    )
    assert fetched.returncode == 0, f"Maven could not fetch Kafka's jars:\n{fetched.stdout}{fetched.stderr}"


class KafkaServer:
    """A broker that runs from `start` to `stop`, any number of times, on the same data and the same port."""

    def __init__(
        self,
        listeners: Mapping[str, tuple[str, str]] | None = None,
        users: Sequence[str] = (),
        tells: str = "",
        **settings: str,
    ) -> None:
        """`settings` are the broker's, beside those that it has here; `__` stands for a dot.

        `listeners` are its further ones: by name, where it listens and what address it tells. `users` are those of
        SCRAM, as its tool wants them: `mechanism=[name=…,password=…]`. `tells`: of which Java package the log has more
        than warnings.
        """
        self._jars = jars()
        self._told = [f"-Dorg.slf4j.simpleLogger.log.{tells}=info"] if tells else []
        self.folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port, control = free_ports(2)
        self.bootstrap = f"127.0.0.1:{self.port}"
        ways = {"PLAINTEXT": (self.bootstrap, self.bootstrap), **(listeners or {})}
        control_way = {"CONTROLLER": (f"127.0.0.1:{control}", "")}
        places = {
            "listeners": ",".join(f"{name}://{at}" for name, (at, _) in (ways | control_way).items()),
            "advertised.listeners": ",".join(f"{name}://{told}" for name, (_, told) in ways.items()),
            "controller.quorum.voters": f"1@127.0.0.1:{control}",
            "log.dirs": str(self.folder / "data"),
        }
        given = {name.replace("__", "."): value for name, value in settings.items()}
        lines = [f"{name}={value}\n" for name, value in {**_SETTINGS, **places, **given}.items()]
        self._properties.write_text("".join(lines), "utf-8")
        self._format(users)

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def start(self) -> None:
        """Returns once it takes requests, those of groups as well."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=_end_with_the_parent,
            )
        deadline = time.monotonic() + LIMIT_S
        while not answers(self.bootstrap):
            assert self._process.poll() is None, f"the broker did not start:\n{self.log}"
            assert time.monotonic() < deadline, f"the broker takes no requests:\n{self.log}"
            time.sleep(0.05)  # it tells nobody when it is ready

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """SIGTERM: in order. SIGKILL: as if it had crashed."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(LIMIT_S)
            self._process = None

    def crash(self) -> None:
        self.stop(signal.SIGKILL)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """While it lasts, connections stand and nothing is answered."""
        assert self._process is not None, "it doesn't run"
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop it, and take its folder away."""
        self.crash()
        shutil.rmtree(self.folder)

    def _format(self, users: Sequence[str]) -> None:
        options = ["-t", _CLUSTER, "-c", str(self._properties)]
        for user in users:
            options += ["--add-scram", user]
        command = self._command("kafka.tools.StorageTool", "format", *options)
        made = subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, timeout=LIMIT_S, preexec_fn=_end_with_the_parent
        )
        assert made.returncode == 0, f"its folder could not be made ({NEEDED}):\n{made.stdout}{made.stderr}"

    def _command(self, main: str, *arguments: str) -> list[str]:
        return [program("java"), *_JVM, *self._told, "-cp", f"{self._jars}/*", main, *arguments]

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _log(self) -> Path:
        return self.folder / "log"


_CLUSTER = "dGVzdHMtb2YtZGlzcGF0Y2g"  # any 16 bytes, in base64
#: A small heap, and no second compiler: it starts twice as fast, and seldom lives for more than a minute.
_JVM = (
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",  # a group's first member waits for no others
    "group.min.session.timeout.ms": "1000",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "1",
    "group.coordinator.threads": "1",
    "share.coordinator.threads": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",
}
_LIBC = ctypes.CDLL(None)


def _end_with_the_parent() -> None:
    """A test run that is killed takes its broker with it. Source: prctl(2), PR_SET_PDEATHSIG."""
    _LIBC.prctl(1, int(signal.SIGKILL))


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().choice(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(("127.0.0.1", port))
            found.append(port)
    return found


def answers(bootstrap: str) -> bool:
    """Whether a broker there takes requests. A new client each time: an old one waits ever longer between its tries.

    The first to ask for a group has the broker make the topic that it keeps groups in.
    """
    host, port = bootstrap.split(":")
    settings = {"bootstrap.servers": bootstrap, "group.id": "any", "log_level": 0}
    try:
        socket.create_connection((host, int(port)), 1).close()
        client = Consumer(settings)
        try:
            client.committed([TopicPartition("any", 0)], timeout=5)
            return bool(client.list_topics(timeout=2).brokers)
        finally:
            client.close()
    except (OSError, KafkaException):
        return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@functools.cache
def shared() -> str:
    """The address of the broker that the tests of this run share: the first who asks starts it, and ends it last.

    KAFKA_BOOTSTRAP_SERVERS, if it is set, names another one.
    """
    elsewhere = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if elsewhere:
        return elsewhere
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    note = Path(tempfile.gettempdir()) / f"kafka-of-run-{run}"  # the address; and a lock that all its users share
    with _locked(_SHARED):
        users = _AT_THE_END.enter_context(note.open("a+"))
        fcntl.flock(users, fcntl.LOCK_SH)
        users.seek(0)
        address = users.read()
        if not address:
            server = KafkaServer()
            _AT_THE_END.callback(server.close)
            server.start()
            address = server.bootstrap
            users.write(address)
            users.flush()
            _AT_THE_END.callback(_wait_for_the_others, note, users.fileno())
    return address


def _wait_for_the_others(note: Path, users: int) -> None:
    """Until no other process that asked for the shared broker has a test left. One that asks now starts its own."""
    with _locked(_SHARED):
        note.unlink()
    fcntl.flock(users, fcntl.LOCK_EX)


_AT_THE_END = contextlib.ExitStack()


def end_shared() -> None:
    """Called once, when no test will follow."""
    _AT_THE_END.close()
