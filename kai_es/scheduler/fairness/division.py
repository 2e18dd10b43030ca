"""Fair shares: the cluster divided among the queues, level by level.

Each resource is divided on its own. At one level every queue first gets what it deserves (as far
as it asks for it, even beyond the total); what is left goes by priority band, within a band by
weight and past usage, in rounds of whole units: devices, millicores, bytes. The children of a
queue divide exactly its share.

Amounts are exact integers. A share `pot × weight / Σ weights` is exact too where weights are whole
and no usage counts; usage and broken weights are floats, in the reference's units and in row order
(`_Band._parts` is the one place).

Reference: pkg/scheduler/plugins/proportion/resource_division/resource_division.go (fairness §3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kai_es.kube.labels import GPU_MICRO, UNLIMITED
from kai_es.scheduler.fairness.vectors import Vector
from kai_es.scheduler.flags import LEFTOVER_OVER_REQUEST, ROUNDING_TO_LOWER_BAND, Flags

UNITS: Final[Vector] = (1, 1, GPU_MICRO)
"""One unit of each resource as amount: shares are rounded to whole ones."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What queues may and want to have of one resource, by queue row.

    deserved: guaranteed quota, `UNLIMITED` = all of the level's total.
    limit:    most that it may have, `UNLIMITED` = none.
    weight:   for what is left over; 0 or less = nothing of it.
    request:  allocated and pending demand.
    usage:    normalised past usage, 0..1 for a fully observed cluster.
    """

    deserved: Sequence[int]
    limit: Sequence[int]
    weight: Sequence[float]
    request: Sequence[int]
    usage: Sequence[float]


@dataclass(frozen=True, slots=True)
class Division:
    """How to divide; the same for all resources and levels.

    priority:   by queue row; higher bands first.
    created_ms: by queue row; the older of two equal queues gets a left-over unit. Rows are in name
                order, which decides last.
    k_value:    how much past usage counts, 0 = not at all.
    flags:      rule flags in force.
    """

    priority: Sequence[int]
    created_ms: Sequence[int]
    k_value: float = 0.0
    flags: Flags = frozenset()

    def divide_tree(
        self,
        total: Vector,
        claims: tuple[Claims, Claims, Claims],
        roots: Sequence[int],
        children: Sequence[Sequence[int]],
    ) -> list[Vector]:
        """The fair share of every queue.

        Args:
            total: of the cluster.
            claims: CPU, memory, GPU.
            roots: rows of the queues without parent.
            children: by queue row. No cycles.

        Returns:
            By queue row; zero for queues that no root reaches.
        """
        shares = [
            self.divide_resource(total[r], claims[r], UNITS[r], roots, children) for r in range(3)
        ]
        return list(zip(*shares, strict=True))

    def divide_resource(
        self,
        total: int,
        claims: Claims,
        unit: int,
        roots: Sequence[int],
        children: Sequence[Sequence[int]],
    ) -> list[int]:
        """The fair share of one resource, by queue row."""
        fair = [0] * len(claims.deserved)
        levels: list[tuple[int, Sequence[int]]] = [(total, roots)]
        while levels:
            amount, rows = levels.pop()
            self.divide_level(amount, rows, claims, unit, fair)
            levels.extend((fair[row], children[row]) for row in rows if children[row])
        return fair

    def divide_level(
        self, total: int, rows: Sequence[int], claims: Claims, unit: int, fair: list[int]
    ) -> int:
        """Divides one resource among siblings.

        Args:
            total: what they divide.
            rows: the siblings.
            claims: of all queues.
            unit: one whole unit of the resource.
            fair: by queue row; set for the siblings.

        Returns:
            What is left, never below 0.
        """
        left = total
        for row in rows:
            quota = claims.deserved[row]
            share = min(
                total if quota >= UNLIMITED else quota, claims.limit[row], claims.request[row]
            )
            fair[row] = share = max(share, 0)
            left -= share
        return self.divide_over_quota(left, rows, claims, unit, fair) if left > 0 else 0

    def divide_over_quota(
        self, left: int, rows: Sequence[int], claims: Claims, unit: int, fair: list[int]
    ) -> int:
        """Divides what the quotas left of a level.

        Args:
            left: what they divide, above 0.
            rows: the siblings.
            claims: of all queues.
            unit: one whole unit of the resource.
            fair: by queue row; what each gets is added.

        Returns:
            What is left.
        """
        bands: dict[int, _Band] = {}
        for row in rows:
            most = min(claims.limit[row], claims.request[row])
            weight = claims.weight[row]
            if weight > 0 and most > fair[row]:
                band = bands.get(self.priority[row])
                if band is None:
                    band = bands[self.priority[row]] = _Band(unit, self.k_value)
                band.members.append(_Member(row, most, weight, claims.usage[row]))
        in_order = [bands[priority] for priority in sorted(bands, reverse=True)]
        whole = LEFTOVER_OVER_REQUEST in self.flags
        if ROUNDING_TO_LOWER_BAND in self.flags:  # compat: fractions wait until all bands have run
            for band in in_order:
                left = band.run_rounds(left, fair)
            for band in in_order:
                left = band.hand_out(left, fair, self.created_ms, whole=whole)
            return left
        for band in in_order:
            left = band.run_rounds(left, fair)
            left = band.hand_out(left, fair, self.created_ms, whole=whole)
        return left


class _Member:
    """A queue of a band.

    most:     what it may get at most, quota included.
    fraction: of a unit, lost to rounding; 0 = none.
    """

    __slots__ = ("fraction", "most", "row", "usage", "weight")

    def __init__(self, row: int, most: int, weight: float, usage: float) -> None:
        self.row = row
        self.most = most
        self.weight = weight
        self.usage = usage if math.isfinite(usage) else 0.0  # capacity 0 in the books
        self.fraction = 0.0


class _Band:
    """Siblings of one priority that may get more than their quota."""

    __slots__ = ("_k_value", "_unit", "members")

    def __init__(self, unit: int, k_value: float) -> None:
        self.members: list[_Member] = []
        self._unit = unit
        self._k_value = k_value

    def run_rounds(self, left: int, fair: list[int]) -> int:
        """Hands out whole units by weight, until nobody needs less than its part (fairness §3.3).

        Returns:
            What is left, fractions included.
        """
        hungry = self.members
        while left > 0:
            hungry = [member for member in hungry if member.most > fair[member.row]]
            usage_counts = self._k_value > 0 and any(member.usage for member in hungry)
            wanted = sum(member.most - fair[member.row] for member in hungry)
            if not usage_counts and wanted <= left:
                return left - _satisfy(hungry, fair)
            if usage_counts or any(member.weight % 1 for member in hungry):
                given, again = self._round(left, hungry, fair)
            else:
                given, again = self._exact_round(left, hungry, fair)
            left -= given
            if not again:
                break
        return left

    def _exact_round(
        self, pot: int, hungry: Sequence[_Member], fair: list[int]
    ) -> tuple[int, bool]:
        """One round where a part is `pot × weight / Σ weights`, all whole numbers.

        Returns:
            What was given, and whether somebody needed less than its part.
        """
        sum_weights = int(sum(member.weight for member in hungry))
        unit = sum_weights * self._unit  # amounts are scaled by the sum, to stay whole
        given, again = 0, False
        for member in hungry:
            want, part = member.most - fair[member.row], pot * int(member.weight)
            if want * sum_weights <= part:
                again = again or want * sum_weights < part
                member.fraction, give = 0.0, want
            else:
                units, rest = divmod(part, unit)
                give = units * self._unit
                if rest:
                    member.fraction = rest / unit
            fair[member.row] += give
            given += give
        return given, again

    def _round(self, pot: int, hungry: Sequence[_Member], fair: list[int]) -> tuple[int, bool]:
        """One round in floats, for usage and broken weights; result as of `_exact_round`."""
        given, again = 0, False
        for member, part in zip(hungry, self._parts(pot / self._unit, hungry), strict=True):
            amount = member.most - fair[member.row]
            want = amount / self._unit
            if want <= part:
                again = again or want < part
                member.fraction, give = 0.0, amount
            else:
                units = math.floor(part)
                give = units * self._unit
                if part > units:
                    member.fraction = part - units
            give = min(give, pot - given)  # the last bit of a float must not overspend
            fair[member.row] += give
            given += give
        return given, again

    def _parts(self, pot: float, hungry: Sequence[_Member]) -> list[float]:
        """Every member's part of the pot, in units: the one place of the weights' float maths."""
        k_value = self._k_value
        sum_weights = math.fsum(member.weight for member in hungry)
        normal = [member.weight / sum_weights for member in hungry]
        portions = [
            max(0.0, n + k_value * (n - member.usage))
            for n, member in zip(normal, hungry, strict=True)
        ]
        sum_portions = math.fsum(portions)
        if sum_portions <= 0:
            return [0.0] * len(portions)
        return [pot * (portion / sum_portions) for portion in portions]

    def hand_out(
        self, left: int, fair: list[int], created_ms: Sequence[int], *, whole: bool
    ) -> int:
        """Gives one unit each to those that lost the most to rounding.

        Args:
            left: what there is.
            fair: by queue row.
            created_ms: by queue row, decides between equal fractions.
            whole: the unit is not cut to what a queue may still get.

        Returns:
            What is left.
        """
        if left <= 0:
            return left
        losers = [member for member in self.members if member.fraction > 0]
        losers.sort(key=lambda member: (-member.fraction, created_ms[member.row], member.row))
        for member in losers:
            give = min(self._unit, left)
            if not whole:
                give = min(give, member.most - fair[member.row])
            fair[member.row] += give
            left -= give
            if left == 0:
                break
        return left


def _satisfy(hungry: Sequence[_Member], fair: list[int]) -> int:
    """Equal to the rounds when there is enough for all: each round satisfies somebody."""
    given = 0
    for member in hungry:
        given += member.most - fair[member.row]
        fair[member.row] = member.most
        member.fraction = 0.0
    return given
