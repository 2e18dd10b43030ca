"""Where Kafka is and how topics begin, checked before anything connects.

The clients take a wrong address for a broker that is away, each in its own way.
"""

import ipaddress
import re
from typing import Final

from kai_es.events.catalogue import TOPICS
from kai_es.ports.errors import ConfigError

_LABEL: Final = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}"
_ADDRESS: Final = re.compile(
    rf"(?P<host>{_LABEL}(\.{_LABEL})*\.?|\[(?P<v6>[0-9A-Fa-f:.]+)\]):(?P<port>[0-9]{{1,5}})"
)
_PORT_MAX: Final = 2**16 - 1
_WANTED: Final = "want HOST:PORT[,HOST:PORT], such as kafka:9092 or [::1]:9092"

_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]+")
_TOPIC_LENGTH_MAX: Final = 249
_PREFIX_LENGTH_MAX: Final = _TOPIC_LENGTH_MAX - max(len(f".{name}") for name in TOPICS)


def checked_servers(text: str, *, setting: str) -> str:
    """Bootstrap servers without the blanks between them.

    Args:
        text: what was given.
        setting: where, such as `--kafka`.

    Raises:
        ConfigError: no list of HOST:PORT.
    """
    servers = [server.strip() for server in text.split(",")]
    for server in servers:
        problem = _problem(server)
        if problem:
            of = f" of {text!r}" if server != text else ""
            raise ConfigError(f"{setting} {server!r}{of}: {problem}; {_WANTED}")
    return ",".join(servers)


def checked_prefix(text: str, *, setting: str) -> str:
    """A prefix of topics that a broker takes.

    Raises:
        ConfigError: it would not.
    """
    if not _PREFIX.fullmatch(text):
        raise ConfigError(
            f"{setting} {text!r}: topics cannot begin so; want letters, digits, `.`, `_` and `-`"
        )
    if len(text) > _PREFIX_LENGTH_MAX:
        raise ConfigError(
            f"{setting} {text!r}: {len(text)} characters, at most {_PREFIX_LENGTH_MAX} leave room "
            f"for the names of topics"
        )
    return text


def _problem(server: str) -> str:
    """What is wrong with one address, "" = nothing."""
    if not server:
        return "an empty entry"
    found = _ADDRESS.fullmatch(server)
    if found is None:
        return "no address of a broker"
    if not 0 < int(found["port"]) <= _PORT_MAX:
        return f"there is no port {found['port']}"
    if found["v6"] is not None:
        try:
            ipaddress.IPv6Address(found["v6"])
        except ValueError as exc:
            return str(exc)
    return ""
