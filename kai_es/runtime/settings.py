"""Where a process finds its log, its database and its cluster: command line, then environment."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kai_es.ports.errors import ConfigError
from kai_es.runtime.binding import given
from kai_es.runtime.kafka_address import checked_prefix, checked_servers
from kai_es.runtime.kafka_security import kafka_security

ENV_DATA: Final = "KAI_ES_DATA"
ENV_KAFKA: Final = "KAI_ES_KAFKA"
ENV_PREFIX: Final = "KAI_ES_TOPIC_PREFIX"
ENV_DATABASE: Final = "KAI_ES_DATABASE_URL"
ENV_CONFIG: Final = "KAI_ES_CONFIG"
ENV_LOG_LEVEL: Final = "KAI_ES_LOG_LEVEL"
ENV_LOG_JSON: Final = "KAI_ES_LOG_JSON"
ENV_MIRROR: Final = "KAI_ES_MIRROR_BIND_REQUESTS"
DEFAULT_PREFIX: Final = "kai"
DEFAULT_SHARD: Final = "default"


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings.

    data:       folder of the embedded instance (log, database and, in the demo, the cluster).
    kafka:      bootstrap servers; "" = the SQLite log of the embedded instance.
    kafka_security: how clients log in there; see `runtime.kafka_security`.
    database:   SQLAlchemy URL; "" = the embedded PostgreSQL of the instance.
    kubeconfig: path; "" = that of the instance if it has one, else the client's own rules.
    config:     path of a shard configuration (YAML), "" = defaults.
    mirror_bind_requests: bind requests are shown as objects, for `kubectl get bindrequests`.
    binder:     its flags that were given; see `runtime.binding`.
    """

    data: Path
    kafka: str = ""
    prefix: str = DEFAULT_PREFIX
    database: str = ""
    kubeconfig: str = ""
    config: str = ""
    shard: str = DEFAULT_SHARD
    mirror_bind_requests: bool = False
    kafka_security: Mapping[str, Any] = field(default_factory=dict)
    binder: Mapping[str, str] = field(default_factory=dict)


def default_data(environ: Mapping[str, str] = os.environ) -> Path:
    """The instance that commands mean when they are not told one."""
    if environ.get(ENV_DATA):
        return Path(environ[ENV_DATA])
    base = environ.get("XDG_DATA_HOME") or str(
        Path(environ.get("HOME", "~")).expanduser() / ".local/share"
    )
    return Path(base) / "kai-es" / "default"


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """`--data DIR`, the same on every command."""
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=_folder,
        default=None,
        help=f"folder of the embedded instance (default: ${ENV_DATA} or {default_data()}); not "
        "looked at where --kafka says where the log is",
    )


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name a folder, or leave --data out")
    return Path(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of commands that read or write a log or a database."""
    add_data_argument(parser)
    parser.add_argument(
        "--kafka",
        metavar="HOST:PORT[,…]",
        default=os.environ.get(ENV_KAFKA, ""),
        help=f"Kafka bootstrap servers instead of the embedded log (${ENV_KAFKA}); "
        "how to log in there: KAI_ES_KAFKA_SECURITY_… of docs/operations.md",
    )
    parser.add_argument(
        "--prefix",
        default=os.environ.get(ENV_PREFIX) or DEFAULT_PREFIX,
        help=f"prefix of topic names (${ENV_PREFIX}, default {DEFAULT_PREFIX})",
    )
    parser.add_argument(
        "--database",
        metavar="URL",
        default=os.environ.get(ENV_DATABASE, ""),
        help=f"PostgreSQL instead of the embedded one (${ENV_DATABASE})",
    )


def add_cluster_argument(parser: argparse.ArgumentParser) -> None:
    """`--kubeconfig FILE`."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default="",
        help="cluster to work on (default: the instance's own, $KUBECONFIG, in-cluster)",
    )


def add_part_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of single parts; those of the environment go to whoever is meant."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"shard configuration, YAML, which the informer puts into the log (${ENV_CONFIG}); "
        "default: built-in defaults",
    )
    parser.add_argument(
        "--mirror-bind-requests",
        action="store_true",
        help="the status writer shows bind requests as objects, two writes more per pod, for "
        f"`kubectl get bindrequests` (${ENV_MIRROR}=true)",
    )


def from_args(args: argparse.Namespace) -> Settings:
    """Settings of a parsed command line.

    Raises:
        ConfigError: where Kafka is, how topics begin or how to log in there cannot work; or
            topics are named and no Kafka.
    """
    kafka, prefix = getattr(args, "kafka", ""), getattr(args, "prefix", DEFAULT_PREFIX)
    if kafka:
        kafka = checked_servers(kafka, setting=_setting("--kafka", ENV_KAFKA, kafka))
        prefix = checked_prefix(prefix, setting=_setting("--prefix", ENV_PREFIX, prefix))
    elif prefix not in ("", DEFAULT_PREFIX, os.environ.get(ENV_PREFIX)):
        raise ConfigError(
            f"--prefix {prefix} does nothing without --kafka: it begins the names of Kafka's "
            f"topics; name the broker (--kafka, ${ENV_KAFKA}), or leave --prefix out"
        )
    return Settings(
        data=(args.data or default_data()).resolve(),
        kafka=kafka,
        prefix=prefix,
        database=getattr(args, "database", ""),
        kubeconfig=getattr(args, "kubeconfig", ""),
        config=_config(args),
        shard=getattr(args, "shard", None) or DEFAULT_SHARD,
        mirror_bind_requests=_mirrors(args),
        kafka_security=kafka_security() if kafka else {},
        binder=given(args),
    )


def _setting(flag: str, variable: str, value: str) -> str:
    """Where a value was given."""
    return variable if value and os.environ.get(variable) == value else flag


def _config(args: argparse.Namespace) -> str:
    named: str | None = getattr(args, "config", None)
    return os.environ.get(ENV_CONFIG, "") if named is None else named


def _mirrors(args: argparse.Namespace) -> bool:
    if not hasattr(args, "mirror_bind_requests"):
        return False
    return bool(args.mirror_bind_requests) or os.environ.get(ENV_MIRROR, "") == "true"
