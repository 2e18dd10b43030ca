"""Laws of the division, against a slow oracle that follows the page word by word (fairness §3)."""

import random
from fractions import Fraction
from math import floor

from hypothesis import example, given
from hypothesis import strategies as st

from kai_es.kube.labels import UNLIMITED
from kai_es.scheduler import flags
from kai_es.scheduler.fairness.division import Claims, Division

UNIT = 4
AMOUNTS = st.integers(0, 60)
QUEUE = st.tuples(
    st.one_of(AMOUNTS, st.just(UNLIMITED)),  # deserved
    st.one_of(AMOUNTS, st.just(UNLIMITED)),  # limit
    st.sampled_from((0.0, 1.0, 2.0, 3.0, 7.0)),  # weight
    AMOUNTS,  # request
    st.sampled_from((1, 2)),  # priority
    st.integers(0, 2),  # created
)
LEVEL = st.lists(QUEUE, max_size=7)
RULES = st.sampled_from((flags.NONE, flags.ALL))


def divide(total, queues, rules, *, order=None):
    rows = list(range(len(queues)))
    claims = Claims(
        deserved=[queue[0] for queue in queues],
        limit=[queue[1] for queue in queues],
        weight=[queue[2] for queue in queues],
        request=[queue[3] for queue in queues],
        usage=[0.0] * len(queues),
    )
    division = Division([q[4] for q in queues], [q[5] for q in queues], 1.0, rules)
    fair = [0] * len(queues)
    left = division.divide_level(total, order or rows, claims, UNIT, fair)
    return fair, left


def oracle(total, queues, rules):
    """Fractions of units, queue by queue, phase by phase."""
    most = [Fraction(min(queue[1], queue[3]), UNIT) for queue in queues]
    fair = []
    for row, queue in enumerate(queues):
        deserved = total if queue[0] == UNLIMITED else queue[0]
        fair.append(min(Fraction(deserved, UNIT), most[row]))
    rest = Fraction(total, UNIT) - sum(fair)
    if rest <= 0:
        return fair, Fraction(0)
    bands = [
        [row for row, queue in enumerate(queues) if queue[4] == priority] for priority in (2, 1)
    ]
    left: list[dict[int, Fraction]] = [{}, {}]
    late = flags.ROUNDING_TO_LOWER_BAND in rules
    for n, band in enumerate(bands):
        rest = rounds(band, queues, most, fair, rest, left[n])
        if not late:
            rest = leftovers(left[n], queues, most, fair, rest, rules)
    if late:
        for n in range(2):
            rest = leftovers(left[n], queues, most, fair, rest, rules)
    return fair, rest


def rounds(band, queues, most, fair, rest, left):
    again = True
    while again and rest > 0:
        again, pot = False, rest
        hungry = [row for row in band if most[row] > fair[row]]
        weights = sum(Fraction(queues[row][2]) for row in hungry)
        if weights == 0:
            break
        for row in hungry:
            if rest == 0 or queues[row][2] == 0:
                continue
            want, share = most[row] - fair[row], pot * Fraction(queues[row][2]) / weights
            if want <= share:
                give = want
                left.pop(row, None)
            else:
                give = Fraction(floor(share))
                if share > give:
                    left[row] = share - give
            if give == 0:
                continue
            fair[row] += give
            rest -= give
            again = again or want < share
    return rest


def leftovers(left, queues, most, fair, rest, rules):
    for row in sorted(left, key=lambda row: (-left[row], queues[row][5], row)):
        if rest <= 0:
            break
        give = min(Fraction(1), rest)
        if flags.LEFTOVER_OVER_REQUEST not in rules:
            give = min(give, most[row] - fair[row])
        fair[row] += give
        rest -= give
    return rest


@given(AMOUNTS, LEVEL, RULES)
@example(20, [(8, UNLIMITED, 2.0, 20, 2, 0), (8, UNLIMITED, 2.0, 20, 2, 0)], flags.NONE)
def test_equals_the_page(total, queues, rules):
    fair, left = divide(total, queues, rules)
    want, rest = oracle(total, queues, rules)
    assert [Fraction(share, UNIT) for share in fair] == want
    assert Fraction(left, UNIT) == rest


@given(AMOUNTS, LEVEL)
def test_never_more_than_total_limit_or_request(total, queues):
    fair, left = divide(total, queues, flags.NONE)
    for share, (deserved, limit, _, request, *_) in zip(fair, queues, strict=True):
        assert min(share, limit, request) == share
        quota = total if deserved == UNLIMITED else deserved
        assert share >= min(quota, limit, request)
    guaranteed = sum(
        min(total if d == UNLIMITED else d, limit, request) for d, limit, _, request, *_ in queues
    )
    assert sum(fair) <= max(total, guaranteed)
    assert left == max(total - sum(fair), 0)


@given(AMOUNTS, LEVEL)
def test_nothing_is_left_while_a_queue_with_weight_wants_more(total, queues):
    fair, left = divide(total, queues, flags.NONE)
    for share, (_, limit, weight, request, *_) in zip(fair, queues, strict=True):
        assert left == 0 or weight == 0 or share == min(limit, request)


@given(AMOUNTS, LEVEL, RULES, st.integers())
def test_order_of_rows_does_not_matter(total, queues, rules, seed):
    order = list(range(len(queues)))
    random.Random(seed).shuffle(order)
    assert divide(total, queues, rules, order=order) == divide(total, queues, rules)


@given(
    AMOUNTS,
    st.lists(st.tuples(QUEUE, st.floats(0, 1), st.floats(0, 5)), max_size=6),
    st.floats(0, 100),
)
def test_usage_and_broken_weights_never_overspend(total, queues, k):
    rows = list(range(len(queues)))
    claims = Claims(
        deserved=[queue[0] for queue, *_ in queues],
        limit=[queue[1] for queue, *_ in queues],
        weight=[weight for _, _, weight in queues],
        request=[queue[3] for queue, *_ in queues],
        usage=[usage for _, usage, _ in queues],
    )
    division = Division([q[4] for q, *_ in queues], [q[5] for q, *_ in queues], k)
    fair = [0] * len(queues)
    left = division.divide_level(total, rows, claims, UNIT, fair)
    assert left >= 0
    guaranteed = sum(
        min(total if queue[0] == UNLIMITED else queue[0], queue[1], queue[3])
        for queue, *_ in queues
    )
    assert sum(fair) + left == max(total, guaranteed)
    assert all(
        share <= min(queue[1], queue[3]) for share, (queue, *_) in zip(fair, queues, strict=True)
    )
