"""Which preparations run before a bind, in which order, with which arguments. Pure.

Reference: binder.md §9; pkg/binder/plugins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kai_es.ports.errors import ConfigError

VOLUMES: Final = "volumebinding"
CLAIMS: Final = "dynamicresources"
SHARING: Final = "gpusharing"
MEMORY_LIMIT: Final = "hamicore"

BIND_TIMEOUT: Final = "bindTimeoutSeconds"
CDI: Final = "cdiEnabled"
BIND_TIMEOUT_S: Final = 120

_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_DIGITS_MAX: Final = 18


@dataclass(frozen=True, slots=True)
class Plugin:
    """How one preparation is set."""

    enabled: bool = True
    priority: int = 0
    arguments: Mapping[str, str] = field(default_factory=dict)


Plugins = Mapping[str, Plugin]


def defaults(*, timeout_s: int = BIND_TIMEOUT_S, cdi: bool = False) -> dict[str, Plugin]:
    """What is built in."""
    timeout = {BIND_TIMEOUT: str(timeout_s)}
    return {
        VOLUMES: Plugin(True, 300, timeout),
        CLAIMS: Plugin(True, 200, timeout),
        SHARING: Plugin(True, 100, {CDI: "true" if cdi else "false"}),
        MEMORY_LIMIT: Plugin(False, 50),
    }


class _Override(msgspec.Struct):
    enabled: bool | None = None
    priority: int | None = None
    arguments: dict[str, str] | None = None


def overridden(known: Plugins, overrides: Mapping[str, Any]) -> dict[str, Plugin]:
    """`known` with what is given; given arguments replace all, an unknown name is added.

    Raises:
        ConfigError: an override is not of the form {enabled, priority, arguments}.
    """
    found = dict(known)
    for name, raw in overrides.items():
        try:
            given = msgspec.convert(raw, _Override)
        except msgspec.ValidationError as exc:
            raise ConfigError(f"binder plugin {name!r}: {exc}") from exc
        old = found.get(name, Plugin())
        found[name] = Plugin(
            old.enabled if given.enabled is None else given.enabled,
            old.priority if given.priority is None else given.priority,
            old.arguments if given.arguments is None else given.arguments,
        )
    return found


def from_json(text: str) -> dict[str, Plugin]:
    """The built-in plugins with the overrides of a JSON object; "" = none.

    Raises:
        ConfigError: it is none, or an override is wrong.
    """
    try:
        overrides = msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise ConfigError(f"failed to parse JSON for binder plugins: {exc}") from exc
    return overridden(defaults(), overrides)


def in_order(plugins: Plugins) -> tuple[str, ...]:
    """Enabled plugins in the order in which they prepare."""
    enabled = [name for name, plugin in plugins.items() if plugin.enabled]
    return tuple(sorted(enabled, key=lambda name: (-plugins[name].priority, name)))


def check(plugins: Plugins) -> None:
    """Whether what is enabled goes together.

    Raises:
        ConfigError: it does not.
    """
    limit, sharing = plugins.get(MEMORY_LIMIT), plugins.get(SHARING)
    if limit is None or not limit.enabled:
        return
    if sharing is None or not sharing.enabled:
        raise ConfigError(f'"{MEMORY_LIMIT}" plugin requires "{SHARING}" plugin to be enabled')
    if sharing.priority <= limit.priority:
        raise ConfigError(
            f'"{MEMORY_LIMIT}" plugin requires "{SHARING}" to run before it '
            f'(expected "{SHARING}".priority > "{MEMORY_LIMIT}".priority, '
            f"got {sharing.priority} <= {limit.priority})"
        )


def seconds(plugins: Plugins, name: str, argument: str) -> int:
    """A required argument of a plugin, in seconds.

    Raises:
        ConfigError: it is missing or no integer.
    """
    text = _argument(plugins, name, argument)
    digits = text.removeprefix("-").removeprefix("+")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _DIGITS_MAX:
        raise _invalid(name, argument, text, "want an integer")
    return int(text)


def boolean(plugins: Plugins, name: str, argument: str) -> bool:
    """A required argument of a plugin, true or false.

    Raises:
        ConfigError: it is missing or neither.
    """
    text = _argument(plugins, name, argument)
    if text not in _BOOLEANS:
        raise _invalid(name, argument, text, "want true or false")
    return _BOOLEANS[text]


def _argument(plugins: Plugins, name: str, argument: str) -> str:
    text = plugins[name].arguments.get(argument)
    if text is None:
        raise ConfigError(f'failed to build binder plugin {name}: missing argument "{argument}"')
    return text


def _invalid(name: str, argument: str, text: str, want: str) -> ConfigError:
    return ConfigError(
        f'failed to build binder plugin {name}: invalid argument "{argument}"="{text}": {want}'
    )
