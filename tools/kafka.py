"""Kafka brokers (KRaft) for tests: fetched by Maven, run on loopback.

Needs `java` (17 or later) and, the first time, `mvn` on the PATH.
"""

import base64
import hashlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Final

from tools import process
from tools.cache import cached

POM: Final = Path(__file__).with_name("kafka-broker.pom.xml")

START_S: Final = 90.0
"""3 s on an idle machine; after kill -9 the broker recovers its logs first."""

_PROPERTIES: Final = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required user_kai="secret";
log.dirs={data}
num.partitions=1
default.replication.factor={copies}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={in_sync}
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
log.cleaner.dedupe.buffer.size=8388608
log.cleaner.backoff.ms=200
"""

_LOG4J: Final = """
Configuration:
  status: warn
  Appenders:
    Console: {name: STDOUT, PatternLayout: {pattern: "%d %p %c{1} %m%n"}}
  Loggers:
    Root: {level: warn, AppenderRef: {ref: STDOUT}}
    Logger: {name: kafka.coordinator.transaction, level: info}
"""

_JVM: Final = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A small heap, and only the quick compiler: a test broker lives for a minute."""

_API_VERSIONS: Final = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
"""The request every broker answers once it serves: size 10, ApiVersions v0, no client id."""


class Broker:
    """One broker with its state in a folder; it dies with this process.

    Args:
        home: the folder; its data survive `stop` and `kill`, and the address stays.
        node: its number in its cluster.
        controllers: controller port of every node of the cluster, None = it is alone.
    """

    def __init__(self, home: Path, *, node: int = 1, controllers: list[int] | None = None) -> None:
        self.home = home
        self.log = home / "broker.log"
        self._port, self._sasl = process.free_port(), process.free_port()
        self._process: subprocess.Popen[bytes] | None = None
        controllers = controllers or [process.free_port()]
        home.mkdir(parents=True, exist_ok=True)
        (home / "log4j2.yaml").write_text(_LOG4J)
        shutil.copytree(formatted(), home / "data", dirs_exist_ok=True)
        _number(home / "data" / "meta.properties", node)
        (home / "server.properties").write_text(
            _properties(
                home / "data", node=node, ports=(self._port, self._sasl), controllers=controllers
            )
        )

    @property
    def address(self) -> str:
        """Bootstrap address."""
        return f"127.0.0.1:{self._port}"

    @property
    def sasl_address(self) -> str:
        """The same for clients that log in: SASL_PLAINTEXT, PLAIN, user kai, password secret."""
        return f"127.0.0.1:{self._sasl}"

    def start(self) -> None:
        """Start and wait until it serves."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start; in a cluster it serves only when most of the others are there too."""
        assert not self.alive(), "the broker runs already"
        self._process = process.start(
            java(self.home, "kafka.Kafka", str(self.home / "server.properties")), log=self.log
        )

    def wait(self) -> None:
        """Wait until it serves."""
        assert self._process is not None
        process.wait_ready(self._process, self._answers, log=self.log, timeout_s=START_S)

    def stop(self) -> None:
        """Stop in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End as by kill -9."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it from doing anything until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End as by kill -9 and remove all data."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            process.stop(self._process, how)

    def _answers(self) -> bool:
        return all(_answers(port) for port in (self._port, self._sasl))


class Cluster:
    """Several brokers; three copies of everything, two of them in sync before an acknowledgement.

    Args:
        home: the folder of their state.
    """

    SIZE: Final = 3

    def __init__(self, home: Path) -> None:
        controllers = [process.free_port() for _ in range(self.SIZE)]
        self.brokers = [
            Broker(home / str(node), node=node, controllers=controllers)
            for node in range(1, self.SIZE + 1)
        ]

    @property
    def address(self) -> str:
        """Bootstrap addresses."""
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> None:
        """Start all and wait until they serve."""
        for broker in self.brokers:
            broker.begin()
        for broker in self.brokers:
            broker.wait()

    def close(self) -> None:
        """End as by kill -9 and remove all data."""
        for broker in self.brokers:
            broker.close()


def _properties(data: Path, *, node: int, ports: tuple[int, int], controllers: list[int]) -> str:
    return _PROPERTIES.format(
        node=node,
        port=ports[0],
        sasl=ports[1],
        controller=controllers[node - 1],
        voters=",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers, 1)),
        copies=len(controllers),
        in_sync=max(1, len(controllers) - 1),
        data=data,
    )


def _number(meta: Path, node: int) -> None:
    """Give a copy of the formatted folder its own node and folder id."""
    own = {
        "node.id": str(node),
        "directory.id": "k" + base64.urlsafe_b64encode(os.urandom(16)).decode()[1:22],
    }
    lines = [line.partition("=") for line in meta.read_text().splitlines()]
    meta.write_text("".join(f"{key}{eq}{own.get(key, value)}\n" for key, eq, value in lines))


def _answers(port: int) -> bool:
    """Whether a listener serves; each starts at its own time."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.settimeout(2)
            sock.sendall(_API_VERSIONS)
            return len(sock.recv(8)) == 8
    except OSError:
        return False


def java(home: Path, main: str, *args: str) -> list[str]:
    """The command that runs a main class of the broker's jars."""
    return [
        _tool("java"),
        *_JVM,
        f"-Dlog4j2.configurationFile={home / 'log4j2.yaml'}",
        "-cp",
        str(jars() / "*"),
        main,
        *args,
    ]


def jars() -> Path:
    """Folder of the broker's jars, fetched once per version."""
    return cached(f"kafka-{_version()}", _fetch)


def formatted() -> Path:
    """An empty, formatted data folder; formatting takes a JVM start, copying it nothing."""
    return cached(f"kafka-{_version()}-data", _format)


def _version() -> str:
    return hashlib.sha256(POM.read_bytes() + _PROPERTIES.encode()).hexdigest()[:12]


def _fetch(folder: Path) -> None:
    _run(
        _tool("mvn"),
        "--quiet",
        "--batch-mode",
        "--strict-checksums",
        f"--file={POM}",
        "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
        f"-DoutputDirectory={folder}",
    )


def _format(folder: Path) -> None:
    (folder / "log4j2.yaml").write_text(_LOG4J)
    properties = folder / "server.properties"
    properties.write_text(_properties(folder / "data", node=1, ports=(1, 2), controllers=[3]))
    _run(
        *java(folder, "kafka.tools.StorageTool", "format"),
        "--cluster-id=kai-es-test-cluster-00",
        f"--config={properties}",
    )
    for path in (folder / "data").iterdir():
        path.rename(folder / path.name)
    for path in (folder / "log4j2.yaml", properties):
        path.unlink()
    (folder / "data").rmdir()


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(
            f"the tests need `{name}` on the PATH to run a Kafka broker (Java 17 or later, Maven); "
            f"or set KAI_ES_TEST_KAFKA=host:port to use yours"
        )
    return found


def _run(*command: str) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
