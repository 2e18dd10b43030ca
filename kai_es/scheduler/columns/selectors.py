"""Label selectors, as values that can be compared and kept as keys.

Reference: Kubernetes' apimachinery/pkg/labels/selector.go, apis/meta/v1/helpers.go.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple


class Requirement(NamedTuple):
    """One condition on a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it; an unknown operator is met by nothing."""
        test = TESTS.get(self.operator)
        return test is not None and test(labels.get(self.key), self.values)


class Selector(NamedTuple):
    """Conditions that must all hold; none at all holds of everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet all conditions."""
        for requirement in self.requirements:  # noqa: SIM110 - half the time of all()
            if not requirement.holds(labels):
                return False
        return True

    @property
    def label(self) -> tuple[str, str] | None:
        """A label and value that all it matches have, None = there is none."""
        for key, operator, values in self.requirements:
            if operator == "In" and len(values) == 1:
                return key, values[0]
        return None


TESTS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _values: value is not None,
    "DoesNotExist": lambda value, _values: value is None,
}
"""Operator -> whether a label's value (None = no such label) passes; what label selectors know."""

EVERYTHING: Final = Selector()
NOTHING: Final = Selector((Requirement("", "Nothing"),))


def selector_of(raw: Mapping[str, Any] | None) -> Selector:
    """A selector in the API's form; None selects nothing, an empty one everything."""
    if raw is None:
        return NOTHING
    found = [
        Requirement(key, "In", (value,))
        for key, value in sorted((raw.get("matchLabels") or {}).items())
    ]
    found += [
        Requirement(one["key"], one["operator"], tuple(sorted(one.get("values") or ())))
        for one in raw.get("matchExpressions") or ()
    ]
    return Selector(tuple(found))
