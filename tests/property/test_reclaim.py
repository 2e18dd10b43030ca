"""Laws of reclaim: the shields, and that the cheap filters never drop what the validator allows."""

from hypothesis import given
from hypothesis import strategies as st

from kai_es.kube.labels import UNLIMITED
from kai_es.scheduler import flags
from kai_es.scheduler.fairness.reclaim import (
    QueueBook,
    Reclaimer,
    ScenarioCheck,
    Unit,
    VictimQueue,
    is_shielded,
    leveled,
    may_be_victim,
)
from kai_es.scheduler.fairness.shares import allocatable_share
from kai_es.scheduler.fairness.vectors import added, fits

PARENTS = (-1, -1, 0, 0, 1, 1)  # leaves: 2, 3 below 0; 4, 5 below 1
LEAVES = (2, 3, 4, 5)
SMALL = st.integers(0, 4)
VECTOR = st.tuples(SMALL, st.just(0), SMALL)
BOUND = st.one_of(SMALL, st.just(UNLIMITED))
BOUNDS = st.tuples(BOUND, st.just(0), BOUND)
ASK = st.tuples(st.integers(0, 2), st.just(0), st.integers(0, 2)).filter(any)


def path(row):
    rows = [row]
    while PARENTS[rows[-1]] >= 0:
        rows.append(PARENTS[rows[-1]])
    return tuple(rows)


@st.composite
def worlds(draw):
    leaf_use = {row: draw(VECTOR) for row in LEAVES}
    books = []
    for row in range(len(PARENTS)):
        below = [child for child in LEAVES if PARENTS[child] == row]
        used = leaf_use.get(row, (0, 0, 0))
        for child in below:
            used = added(used, leaf_use[child])
        deserved, fair = draw(BOUNDS), draw(VECTOR)
        free = (UNLIMITED,) * 3
        books.append(
            QueueBook(deserved, fair, allocatable_share(deserved, fair, free), used, (0, 0, 0))
        )
    ask = draw(ASK)
    reclaimer = Reclaimer(path(draw(st.sampled_from(LEAVES))), ask, named(ask), True)
    return books, reclaimer


def named(vector):
    return vector[0] > 0, vector[1] > 0, vector[2] > 0


def a_unit(amounts, moved=False):
    return Unit(amounts, named(amounts), moved)


def above_elsewhere(reclaimer, victim, books):
    _, y = leveled(reclaimer.path, victim)
    pairs = zip(books[y].allocated, books[y].deserved, reclaimer.requested, strict=True)
    return any(used > quota and asked == 0 for used, quota, asked in pairs)


@given(worlds(), st.sampled_from(LEAVES), ASK, st.booleans())
def test_filters_are_necessary_conditions(world, victim, amounts, moved):
    """Where a victim's side is above its quota in nothing but resources nobody asks for, the
    reference's filter drops it although the validator would not."""
    books, reclaimer = world
    if victim == reclaimer.path[0] or not fits(amounts, books[victim].allocated):
        return
    take = [VictimQueue(path(victim), [a_unit(amounts, moved)])]
    for rules in (flags.NONE, flags.ALL):
        check = ScenarioCheck(reclaimer, books.__getitem__, flags=rules)
        allowed = check.objection(take, PARENTS) is None
        wanted = all(a > 0 or r == 0 for a, r in zip(amounts, reclaimer.requested, strict=True))
        if allowed and wanted and not moved and not above_elsewhere(reclaimer, path(victim), books):
            assert may_be_victim(reclaimer, path(victim), books.__getitem__) is None
        if allowed and rules == flags.NONE:
            assert not is_shielded(reclaimer, path(victim), books.__getitem__)


@given(worlds(), st.sampled_from(LEAVES), st.lists(ASK, min_size=1, max_size=3), st.booleans())
def test_leaf_under_its_quota_in_every_resource_loses_nothing_to_one_above_its_own(
    world, victim, units, moved
):
    books, reclaimer = world
    mine, other = books[reclaimer.path[0]], books[victim]
    guaranteed = other.deserved
    if PARENTS[victim] != PARENTS[reclaimer.path[0]]:  # the paths part at the parents
        guaranteed = tuple(map(min, other.deserved, books[PARENTS[victim]].deserved))
    under = all(a < d or a == d == 0 for a, d in zip(other.allocated, guaranteed, strict=True))
    if not under or not any(guaranteed) or victim == reclaimer.path[0]:
        return
    if fits(added(mine.allocated, reclaimer.requested), mine.deserved):
        return
    take = [VictimQueue(path(victim), [a_unit(amounts, moved) for amounts in units])]
    check = ScenarioCheck(reclaimer, books.__getitem__, flags=flags.NONE)
    assert check.objection(take, PARENTS) is not None
    assert is_shielded(reclaimer, path(victim), books.__getitem__)


@given(worlds(), st.dictionaries(st.sampled_from(LEAVES), st.lists(ASK, max_size=3), max_size=3))
def test_default_allows_nothing_that_compat_refuses(world, takes):
    books, reclaimer = world
    take = [
        VictimQueue(path(row), [a_unit(amounts) for amounts in units])
        for row, units in takes.items()
        if row != reclaimer.path[0]
    ]
    default = ScenarioCheck(reclaimer, books.__getitem__, flags=flags.NONE)
    compat = ScenarioCheck(reclaimer, books.__getitem__, flags=flags.ALL)
    if default.objection(take, PARENTS) is None:
        assert compat.objection(take, PARENTS) is None
    assert default.objection(take, PARENTS) == default.objection(list(reversed(take)), PARENTS)
