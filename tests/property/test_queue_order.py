"""The order of queues is a strict weak order; the reference's is not."""

from hypothesis import given
from hypothesis import strategies as st

from kai_es.kube.labels import UNLIMITED
from kai_es.scheduler import flags
from kai_es.scheduler.fairness.order import QueueStanding, queue_key
from kai_es.scheduler.fairness.shares import allocatable_share
from kai_es.scheduler.fairness.vectors import added, fits, less_everywhere, less_somewhere

SMALL = st.integers(0, 2)
VECTOR = st.tuples(SMALL, SMALL, SMALL)
BOUND = st.one_of(SMALL, st.just(UNLIMITED))
BOUNDS = st.tuples(BOUND, BOUND, BOUND)
TOTAL = (3, 3, 3)


NAME = st.sampled_from("abc")


@st.composite
def states(draw):
    deserved, fair, limit = draw(BOUNDS), draw(VECTOR), draw(BOUNDS)
    standing = QueueStanding(
        deserved,
        fair,
        allocatable_share(deserved, fair, limit),
        draw(SMALL),
        draw(SMALL),
        draw(NAME),
    )
    return standing, draw(VECTOR), draw(VECTOR), draw(st.sampled_from(((0, 0, 0), (1, 0, 2))))


def key_of(state, rules=flags.NONE):
    standing, allocated, wanted, freed = state
    return queue_key(standing, allocated, wanted, freed, TOTAL, rules)


@given(states(), states(), states())
def test_order_is_total_and_has_no_cycles(one, two, three):
    a, b, c = key_of(one), key_of(two), key_of(three)
    assert (a < b) + (b < a) + (a == b) == 1
    assert not (a < b < c) or a < c


def compared(one, two):
    """−1 or 1, rule by rule as the page has them (fairness §4.1); 0 = only identity is left."""
    facts = []
    for standing, allocated, wanted, freed in (one, two):
        after = added(allocated, wanted)
        share = standing.allocatable
        bounds = [total if s == UNLIMITED else s for s, total in zip(share, TOTAL, strict=True)]

        def dominant(used, bounds=bounds):
            units = (1, 1, 10**6)
            ratios = [
                u / b if b else u / unit * 1000
                for u, b, unit in zip(used, bounds, units, strict=True)
            ]
            return max(0, *ratios)

        facts.append(
            (
                less_everywhere(standing.fair_share, allocated),
                not fits(after, standing.deserved),
                -standing.priority,
                any(s == 0 and used > 0 for s, used in zip(share, after, strict=True)),
                dominant([u - f for u, f in zip(after, freed, strict=True)]),
                dominant(allocated),
            )
        )
    if facts[0] != facts[1]:
        return -1 if facts[0] < facts[1] else 1
    left, right = one[0].allocatable, two[0].allocatable
    if less_somewhere(left, right) and fits(left, right):
        return -1
    if less_somewhere(right, left) and fits(right, left):
        return 1
    ages = one[0].created_ms, two[0].created_ms
    return (ages[0] > ages[1]) - (ages[0] < ages[1])


@given(states(), states())
def test_compat_key_equals_the_rules_in_turn(one, two):
    want = compared(one, two)
    a, b = key_of(one, flags.ALL), key_of(two, flags.ALL)
    if want:
        assert (a < b, b < a) == (want < 0, want > 0)
    else:
        assert a[:-1] == b[:-1]


@given(states(), states())
def test_default_differs_from_the_rules_only_for_incomparable_shares(one, two):
    left, right = one[0].allocatable, two[0].allocatable
    if fits(left, right) or fits(right, left):
        assert (key_of(one) < key_of(two)) == (key_of(one, flags.ALL) < key_of(two, flags.ALL))
