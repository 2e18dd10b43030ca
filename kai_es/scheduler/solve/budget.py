"""How much a search for victims may cost.

The reference limits a search by wall time; ours counts work units (simulated scenarios, large ones
for more), so that a cut falls at the same place in every replay. The configured durations are
converted once, by `SearchLimits.in_units`. A limit of 0 means none.

Reference: pkg/scheduler/conf/scheduler_conf.go, pkg/scheduler/actions/common/solvers
(scheduler-core §2.3, §10.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

DEFAULT: Final = "default"
NODE_LOCAL_GREEDY: Final = "NodeLocalGreedy"
MULTI_NODE_GANG: Final = "MultiNodeGang"

_MINUTE_MS: Final = 60_000
ACTION_MS: Final = 5 * _MINUTE_MS
JOB_MS: Final = 4 * _MINUTE_MS
GENERATOR_MS: Final = MappingProxyType(
    {DEFAULT: 2 * _MINUTE_MS, NODE_LOCAL_GREEDY: 30_000, MULTI_NODE_GANG: 2 * _MINUTE_MS}
)

TASKS_PER_UNIT: Final = 5
"""Tasks that a simulation moves for as much as all the rest of it costs the reference: one unit."""


class BudgetError(ValueError):
    """A configured budget makes no sense; the action is skipped with this text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudgets:
    """`scenarioSearchBudgets` as configured, ms; None or a missing key = not set.

    max_action:    by action, or `default`.
    max_generator: by scenario generator, or `default`.
    """

    max_action: Mapping[str, int] = field(default_factory=dict)
    max_job: int | None = None
    min_job: int | None = None
    max_generator: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """Effective limits of one action; ms or units, 0 = unlimited.

    generators: by name, with an entry `default`.
    """

    action: int
    job: int
    min_job: int
    generators: Mapping[str, int]

    def in_units(self, per_second: int) -> "SearchLimits":
        """The limits in work units, rounded up so that a limit never becomes none.

        Args:
            per_second: units that stand for one second of the reference.
        """
        return SearchLimits(
            action=_units(self.action, per_second),
            job=_units(self.job, per_second),
            min_job=_units(self.min_job, per_second),
            generators={name: _units(ms, per_second) for name, ms in self.generators.items()},
        )


def _units(ms: int, per_second: int) -> int:
    return -(-ms * per_second // 1000)


def search_limits(action: str, budgets: SearchBudgets | None) -> SearchLimits:
    """The limits of an action, in ms.

    Raises:
        BudgetError: a negative value, or a least job time that is not below the most.
    """
    budgets = budgets or SearchBudgets()
    _refuse_negative("maxActionSearchDuration", budgets.max_action)
    _refuse_negative("maxGeneratorSearchDuration", budgets.max_generator)
    job = JOB_MS if budgets.max_job is None else budgets.max_job
    min_job = budgets.min_job or 0
    if job < 0:
        raise BudgetError("maxJobSearchDuration must be non-negative")
    if min_job < 0:
        raise BudgetError("minJobSearchDuration must be non-negative")
    if 0 < job <= min_job:
        raise BudgetError("minJobSearchDuration must be less than maxJobSearchDuration")
    return SearchLimits(
        action=budgets.max_action.get(action, budgets.max_action.get(DEFAULT, ACTION_MS)),
        job=job,
        min_job=min_job,
        generators=_generators(budgets.max_generator),
    )


def _refuse_negative(name: str, values: Mapping[str, int]) -> None:
    for key in sorted(values):
        if values[key] < 0:
            raise BudgetError(f'{name}["{key}"] must be non-negative')


def _generators(configured: Mapping[str, int]) -> Mapping[str, int]:
    limits = dict(GENERATOR_MS)
    if DEFAULT in configured:
        limits = dict.fromkeys(limits, configured[DEFAULT])
    return limits | dict(configured)


def filled_at_load(budgets: SearchBudgets | None) -> SearchBudgets:
    """compat: what the reference's loader makes of a file (`compat.F6`).

    It fills in every default by its key, so a configured generator `default` never reaches the
    two shipped generators, which then have entries of their own.
    """
    budgets = budgets or SearchBudgets()
    return SearchBudgets(
        max_action={DEFAULT: ACTION_MS, **budgets.max_action},
        max_job=JOB_MS if budgets.max_job is None else budgets.max_job,
        min_job=budgets.min_job or 0,
        max_generator={**GENERATOR_MS, **budgets.max_generator},
    )


class Meter:
    """Counts the work units of a session."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0

    def simulation(self, n_tasks: int) -> None:
        """Count one.

        Args:
            n_tasks: that it moves: victims and those to be placed.
        """
        self.spent += 1 + n_tasks // TASKS_PER_UNIT


class Budget:
    """A limit that runs from the moment it is made.

    Args:
        meter: what counts the work.
        limit: units, None = unlimited.
    """

    __slots__ = ("_end", "meter")

    def __init__(self, meter: Meter, limit: int | None) -> None:
        self.meter = meter
        self._end = None if limit is None else meter.spent + limit

    def remaining(self) -> int | None:
        """Units left, never below 0; None = unlimited."""
        return None if self._end is None else max(self._end - self.meter.spent, 0)

    def exhausted(self) -> bool:
        """Whether nothing is left."""
        return self._end is not None and self.meter.spent >= self._end


class JobBudget(Budget):
    """A job's part of its action's budget.

    reduced: less than the job's limit was left of the action.
    """

    __slots__ = ("_generators", "reduced")

    def __init__(self, meter: Meter, limits: SearchLimits, action_left: int | None) -> None:
        limit = _least(action_left, limits.job or None)
        super().__init__(meter, None if limit is None else max(limits.min_job, limit))
        self.reduced = action_left is not None and action_left < limits.job
        self._generators = limits.generators

    def begin_generator(self, name: str) -> Budget:
        """The budget of one scenario generator for all its probes of this job."""
        limit = self._generators.get(name, self._generators[DEFAULT])
        return Budget(self.meter, _least(self.remaining(), limit or None))


class ActionBudget(Budget):
    """The budget of one run of an action."""

    __slots__ = ("_limits",)

    def __init__(self, meter: Meter, limits: SearchLimits) -> None:
        super().__init__(meter, limits.action or None)
        self._limits = limits

    def begin_job(self) -> JobBudget:
        """The budget of the search for one job."""
        return JobBudget(self.meter, self._limits, self.remaining())


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
