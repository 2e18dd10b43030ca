"""What `log verify` finds: which invariants were looked at, and where they do not hold."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

VIOLATIONS_MAX: Final = 100
"""More of one invariant are counted, not kept."""


class Violation(NamedTuple):
    """An invariant that does not hold.

    invariant: its number in the list of invariants, or a word for a check of the form.
    where: `snapshot 17`, `decisions/3 12`.
    """

    invariant: str
    where: str
    text: str


class Report(NamedTuple):
    """The outcome.

    checked: what was looked at, and how often.
    violations: the first `VIOLATIONS_MAX` of each invariant; `n_violations` counts all.
    notes: what is worth knowing and breaks nothing.
    """

    checked: Mapping[str, int]
    violations: Sequence[Violation]
    n_violations: int
    notes: Sequence[str]

    @property
    def holds(self) -> bool:
        """Whether nothing was violated."""
        return self.n_violations == 0


class Findings:
    """Collects while a log is read."""

    def __init__(self) -> None:
        self._checked: dict[str, int] = {}
        self._violations: dict[str, list[Violation]] = {}
        self._n_violations = 0
        self._notes: list[str] = []

    def checked(self, what: str, n: int = 1) -> None:
        """Something was looked at."""
        self._checked[what] = self._checked.get(what, 0) + n

    def violated(self, invariant: str, where: str, text: str) -> None:
        """An invariant does not hold."""
        self._n_violations += 1
        of_kind = self._violations.setdefault(invariant, [])
        if len(of_kind) < VIOLATIONS_MAX:
            of_kind.append(Violation(invariant, where, text))

    def note(self, text: str) -> None:
        """Something worth knowing."""
        self._notes.append(text)

    @property
    def n_violations(self) -> int:
        """Violations so far."""
        return self._n_violations

    def report(self) -> Report:
        """Everything so far."""
        violations = [v for of_kind in self._violations.values() for v in of_kind]
        return Report(
            checked=dict(sorted(self._checked.items())),
            violations=violations,
            n_violations=self._n_violations,
            notes=tuple(self._notes),
        )
