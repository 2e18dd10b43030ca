"""The binder's settings from its flags, which are those of the reference."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kai_es.binder.plugins import from_json
from kai_es.binder.reservation import ReservationSettings
from kai_es.binder.service import BinderSettings
from kai_es.ports.errors import ConfigError

_DEFAULT: Final = ReservationSettings()
PLUGINS: Final = "plugins"
APP: Final = "resource-reservation-app-label"
TIMEOUT: Final = "resource-reservation-allocation-timeout"
FAKE: Final = "fake-gpu-nodes"

FLAGS: Final[Mapping[str, tuple[str, str, str]]] = {
    PLUGINS: ("", "JSON", "name -> {enabled, priority, arguments} of what prepares pods"),
    "resource-reservation-namespace": (
        "namespace",
        "NAME",
        f"of reservation pods ({_DEFAULT.namespace})",
    ),
    "resource-reservation-service-account": (
        "service_account",
        "NAME",
        f"of reservation pods ({_DEFAULT.service_account})",
    ),
    "resource-reservation-pod-image": (
        "image",
        "IMAGE",
        f"of reservation pods ({_DEFAULT.image}: this program)",
    ),
    APP: (
        "app",
        "TEXT",
        f"label `app` of reservation pods ({_DEFAULT.app}); the informer must be told it, too",
    ),
    TIMEOUT: (
        "timeout_s",
        "SECONDS",
        f"how long a reservation pod may take ({_DEFAULT.timeout_s})",
    ),
    "resource-reservation-pod-resources": ("resources", "JSON", "their requests and limits"),
    "resource-reservation-pod-security-context": ("pod_security", "JSON", "of the pods"),
    "resource-reservation-container-security-context": (
        "container_security",
        "JSON",
        "of their container",
    ),
    "scale-adjust-namespace": (
        "scale_namespace",
        "NAME",
        f"of pods that ask a node autoscaler for GPUs ({_DEFAULT.scale_namespace})",
    ),
    "runtime-class-name": ("runtime_class", "NAME", "of reservation pods (none)"),
    FAKE: ("fake_gpu", "", "nodes have no GPUs: reservation pods only sleep"),
}
"""Flag -> field of `ReservationSettings`, its metavar, what it is."""

_OBJECTS: Final = ("resources", "pod_security", "container_security")


def add_binder_arguments(parser: argparse.ArgumentParser) -> None:
    """The binder's flags."""
    group = parser.add_argument_group("binder")
    for flag, (_, metavar, text) in FLAGS.items():
        if flag == FAKE:
            group.add_argument(f"--{flag}", action="store_const", const="true", help=text)
        else:
            group.add_argument(f"--{flag}", metavar=metavar, help=text)


def given(args: argparse.Namespace) -> dict[str, str]:
    """The binder's flags of a parsed command line that were given."""
    found = ((flag, getattr(args, flag.replace("-", "_"), None)) for flag in FLAGS)
    return {flag: text for flag, text in found if text}


def as_arguments(flags: Mapping[str, str]) -> list[str]:
    """The same flags for another command line."""
    return [f"--{flag}" if flag == FAKE else f"--{flag}={text}" for flag, text in flags.items()]


def binder_settings(flags: Mapping[str, str]) -> BinderSettings:
    """What the flags say.

    Raises:
        ConfigError: one cannot be read; names it.
    """
    fields: dict[str, Any] = {}
    for flag, text in flags.items():
        field = FLAGS[flag][0]
        if field in _OBJECTS:
            fields[field] = _object(flag, text)
        elif field:
            fields[field] = text
    if "timeout_s" in fields:
        fields["timeout_s"] = _seconds(fields["timeout_s"])
    if "fake_gpu" in fields:
        fields["fake_gpu"] = True
    try:
        plugins = from_json(flags.get(PLUGINS, ""))
    except ConfigError as exc:
        raise ConfigError(f"--{PLUGINS}: {exc}") from exc
    return BinderSettings(plugins=plugins, reservation=ReservationSettings(**fields))


def _object(flag: str, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise ConfigError(f"--{flag}: failed to parse JSON: {exc}; give an object") from exc


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 10**6:
        raise ConfigError(f"--{TIMEOUT} is {text!r}, want a number of seconds")
    return int(text)
