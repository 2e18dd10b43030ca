"""How the clients log in to Kafka, from the environment: `KAI_ES_KAFKA_SECURITY_*`.

Not on the command line: a password there is seen by everyone who may list processes.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kai_es.ports.errors import ConfigError

BEGIN: Final = "KAI_ES_KAFKA_SECURITY_"

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PASSWORD: Final = "sasl_plain_password"


class _Variable(NamedTuple):
    """A setting of kafka-python, and how its value is read from text."""

    setting: str
    read: Callable[[str], Any]


def _word_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.upper() not in words:
            raise ValueError(f"want one of {', '.join(words)}")
        return text.upper()

    return read


def _file(text: str) -> str:
    with Path(text).open("rb"):
        return text


def _content(text: str) -> str:
    return Path(text).read_text().rstrip("\n")


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("want true or false")
    return text.lower() == "true"


_VARIABLES: Final[Mapping[str, _Variable]] = MappingProxyType(
    {
        "PROTOCOL": _Variable("security_protocol", _word_of(*_PROTOCOLS)),
        "MECHANISM": _Variable("sasl_mechanism", _word_of(*_MECHANISMS)),
        "USERNAME": _Variable("sasl_plain_username", str),
        "PASSWORD": _Variable(_PASSWORD, str),
        "PASSWORD_FILE": _Variable(_PASSWORD, _content),
        "CA_FILE": _Variable("ssl_cafile", _file),
        "CERT_FILE": _Variable("ssl_certfile", _file),
        "KEY_FILE": _Variable("ssl_keyfile", _file),
        "KEY_PASSWORD": _Variable("ssl_password", str),
        "CHECK_HOSTNAME": _Variable("ssl_check_hostname", _flag),
    }
)


def kafka_security(environ: Mapping[str, str] = os.environ) -> Mapping[str, Any]:
    """Settings of kafka-python that begin with `security_protocol`, `sasl_` or `ssl_`.

    An empty variable counts as none, so that a compose file can pass all of them on.

    Raises:
        ConfigError: an unknown variable, a value that cannot work, or one that lacks another.
    """
    found: dict[str, Any] = {}
    for name, text in sorted(environ.items()):
        if not name.startswith(BEGIN) or not text:
            continue
        variable = _VARIABLES.get(name.removeprefix(BEGIN))
        if variable is None:
            known = ", ".join(BEGIN + word for word in _VARIABLES)
            raise ConfigError(f"{name}: no such setting; there are {known}")
        try:
            found[variable.setting] = variable.read(text)
        except OSError as exc:
            raise ConfigError(f"{name}={text}: {exc.strerror}") from exc
        except ValueError as exc:
            raise ConfigError(f"{name}={text}: {exc}") from exc
    _check(found)
    return MappingProxyType(found)


def _check(found: dict[str, Any]) -> None:
    """Half a log-in is a mistake that the broker would only answer with silence."""
    protocol = found.get("security_protocol", "PLAINTEXT")
    given = {setting.partition("_")[0] for setting in found} - {"security"}
    for layer, word in (("sasl", "SASL"), ("ssl", "SSL")):
        if layer in given and word not in protocol.split("_"):
            raise ConfigError(
                f"{BEGIN}PROTOCOL is {protocol}, which makes no use of the {word} settings given: "
                f"set it to one of {', '.join(p for p in _PROTOCOLS if word in p.split('_'))}"
            )
    if protocol.startswith("SASL"):
        found.setdefault("sasl_mechanism", "PLAIN")
        for variable in ("USERNAME", "PASSWORD"):
            if not found.get(_VARIABLES[variable].setting):
                raise ConfigError(f"{BEGIN}PROTOCOL is {protocol}: set {BEGIN}{variable} too")
