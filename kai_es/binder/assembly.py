"""A binder's preparations, built from how its plugins are set."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kai_es.binder.device_binding import DeviceBinding
from kai_es.binder.plugins import (
    BIND_TIMEOUT,
    CDI,
    CLAIMS,
    MEMORY_LIMIT,
    SHARING,
    VOLUMES,
    Plugins,
    boolean,
    check,
    in_order,
    seconds,
)
from kai_es.binder.preparation import Preparation
from kai_es.binder.sharing import MemoryLimit, SharedGpus
from kai_es.binder.volume_binding import VolumeBinding
from kai_es.ports.errors import ConfigError

Builder = Callable[[Plugins], Preparation]


def _volumes(plugins: Plugins) -> Preparation:
    return VolumeBinding(timeout_s=seconds(plugins, VOLUMES, BIND_TIMEOUT))


def _claims(plugins: Plugins) -> Preparation:
    seconds(plugins, CLAIMS, BIND_TIMEOUT)  # required, as in the reference; nothing is waited for
    return DeviceBinding()


def _sharing(plugins: Plugins) -> Preparation:
    return SharedGpus(cdi=boolean(plugins, SHARING, CDI))


def _memory_limit(_: Plugins) -> Preparation:
    return MemoryLimit()


BUILDERS: Final[Mapping[str, Builder]] = MappingProxyType(
    {VOLUMES: _volumes, CLAIMS: _claims, SHARING: _sharing, MEMORY_LIMIT: _memory_limit}
)


def built(plugins: Plugins) -> tuple[Preparation, ...]:
    """The preparations that are switched on, in order.

    Raises:
        ConfigError: two do not go together, one is unknown, or an argument is missing or wrong.
    """
    check(plugins)
    found = []
    for name in in_order(plugins):
        build = BUILDERS.get(name)
        if build is None:
            raise ConfigError(
                f"failed to get binder plugin {name}: there are {', '.join(sorted(BUILDERS))}"
            )
        found.append(build(plugins))
    return tuple(found)
