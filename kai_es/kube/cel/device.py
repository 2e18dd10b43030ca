"""A device as selectors see it: `device.driver`, `device.attributes`, `device.capacity`."""

from collections.abc import Iterator, Mapping
from typing import Final

from kai_es.kube.cel.evaluate import compile_expression
from kai_es.kube.cel.values import quantity, semver
from kai_es.kube.devices import Device, Version

_NOTHING: Final[Mapping[str, object]] = {}


class _Domains(Mapping[str, Mapping[str, object]]):
    """Values by domain and name; a domain that nobody named is empty, as in Kubernetes."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._domains: dict[str, dict[str, object]] = {}
        for name, value in values.items():
            domain, _, short = name.rpartition("/")
            self._domains.setdefault(domain, {})[short] = value

    def __getitem__(self, domain: str) -> Mapping[str, object]:
        return self._domains.get(domain, _NOTHING)

    def __contains__(self, domain: object) -> bool:
        return isinstance(domain, str)

    def __iter__(self) -> Iterator[str]:
        return iter(self._domains)

    def __len__(self) -> int:
        return len(self._domains)


class SeenDevice:
    """One device, ready to be matched."""

    def __init__(self, device: Device, driver: str) -> None:
        attributes = {
            name: semver(value.text) if isinstance(value, Version) else value
            for name, value in device.attributes.items()
        }
        capacity = {name: quantity(text) for name, text in device.capacity.items()}
        self._variables = {
            "device": {
                "driver": driver,
                "attributes": _Domains(attributes),
                "capacity": _Domains(capacity),
                "allowMultipleAllocations": False,
            }
        }

    def matches(self, expression: str) -> bool:
        """Whether it is what an expression selects.

        Raises:
            CelError: that cannot be told.
        """
        return compile_expression(expression).holds(self._variables)
