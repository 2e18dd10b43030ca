"""Tables of fairness §3: division of one level, bands, usage, the tree."""

import pytest

from kai_es.kube.labels import GPU_MICRO, UNLIMITED
from kai_es.scheduler import flags
from kai_es.scheduler.fairness.division import Claims, Division


def gpus(value: float) -> int:
    return UNLIMITED if value == -1 else round(value * GPU_MICRO)


def divided(
    total,
    queues,
    *,
    k=0.0,
    usage=None,
    priority=None,
    created=None,
    unit=GPU_MICRO,
    rules=flags.NONE,
):
    """Shares of queues (deserved, weight, limit, request) and what is left, in units."""

    def scaled(value):
        return UNLIMITED if value == -1 else round(value * unit)

    n = len(queues)
    claims = Claims(
        deserved=[scaled(queue[0]) for queue in queues],
        weight=[queue[1] for queue in queues],
        limit=[scaled(queue[2]) for queue in queues],
        request=[scaled(queue[3]) for queue in queues],
        usage=usage or [0.0] * n,
    )
    division = Division(priority or [100] * n, created or list(range(n)), k, rules)
    fair = [0] * n
    left = division.divide_level(scaled(total), range(n), claims, unit, fair)
    return [share / unit for share in fair], left / unit


@pytest.mark.parametrize(
    ("queue", "total", "share", "left"),
    [
        ((3, 0, -1, 2), 2, 2, 0),
        ((3, 0, -1, 2), 3, 2, 1),
        ((3, 0, 2, 2), 3, 2, 1),
        ((3, 0, -1, 2), 1, 2, 0),
        ((3, 0, -1, 5), 7, 3, 4),
        ((1.5, 0, -1, 2), 2, 1.5, 0.5),
        ((3, 0, -1, 1.5), 2, 1.5, 0.5),
        ((0, 0, -1, 2), 2, 0, 2),
        ((0, 1, -1, 5), 6, 5, 1),
        ((-1, 0, -1, 9), 4, 4, 0),
        ((-2, 0, -1, 9), 4, 0, 4),
    ],
)
def test_single_queue(queue, total, share, left):
    assert divided(total, [queue]) == ([share], left)


PAIR = ((2, 2, -1, 6), (2, 2, -1, 6))


@pytest.mark.parametrize(
    ("queues", "total", "options", "shares", "left"),
    [
        (PAIR, 15, {}, [6, 6], 3),
        (PAIR, 12, {}, [6, 6], 0),
        (((2, 1, -1, 6), (2, 3, -1, 6)), 8, {}, [3, 5], 0),
        (((2, 2, 5, 6), (2, 2, -1, 6)), 12, {}, [5, 6], 1),
        (((2, 1, -1, 10), (2, 4, -1, 10)), 11, {}, [3, 8], 0),
        (PAIR, 11, {}, [6, 5], 0),
        (PAIR, 11, {"created": [2, 1]}, [5, 6], 0),
        (PAIR, 4, {"priority": [1, 2]}, [2, 2], 0),
        (PAIR, 6, {"priority": [1, 2]}, [2, 4], 0),
        (((2, 100, -1, 6), (2, 1, -1, 6)), 6, {"priority": [1, 2]}, [2, 4], 0),
        (((2, 2, -1, 5), (2, 2, -1, 5), (1, 2, -1, 0)), 5, {"priority": [2, 2, 1]}, [3, 2, 0], 0),
        (((12, 12, -1, 32.55), (7, 7, -1, 9.5), (2, 2, 2, 1.65)), 45, {}, [32.55, 9.5, 1.65], 1.3),
        (((250, 1, -1, 5000), (150, 2, -1, 5000)), 1000, {}, [450, 550], 0),
        (((250, 1, -1, 5000), (150, 2, 400, 5000)), 1000, {}, [600, 400], 0),
        (((1000, 1, -1, 10000),) * 3, 9999, {}, [3333] * 3, 0),
        (
            ((0, 6, -1, 10000), (0, 2, -1, 10000), (0, 1, -1, 10000)),
            9999,
            {},
            [6666, 2222, 1111],
            0,
        ),
        (((5000, 5000, -1, 10000), (0, 0, -1, 5000)), 10000, {"unit": 1}, [10000, 0], 0),
        (((5000, 5000, -1, 5000),) * 3, 10000, {"unit": 1}, [5000] * 3, 0),
        (
            ((5000, 1, -1, 7000), (5000, 1, -1, 2000), (5000, 1, -1, 2000)),
            10000,
            {"unit": 1},
            [6000, 2000, 2000],
            0,
        ),
    ],
)
@pytest.mark.parametrize("rules", [flags.NONE, flags.ALL], ids=["default", "compat"])
def test_several_queues(queues, total, options, shares, left, rules):
    got, rest = divided(total, queues, rules=rules, **options)
    assert got == pytest.approx(shares, abs=1e-9)
    assert rest == pytest.approx(left, abs=1e-9)


@pytest.mark.parametrize(
    ("k", "usage", "weights", "total", "shares"),
    [
        (1, [0, 0], [1, 1], 16, [8, 8]),
        (1, [1, 0], [1, 1], 16, [0, 16]),
        (1, [0.5, 0.5], [1, 1], 16, [8, 8]),
        (1, [0.6, 0.4], [1, 1], 16, [6, 10]),
        (2, [0.6, 0.4], [1, 1], 16, [5, 11]),
        (1, [0.3, 0.1, 0], [2, 1, 1], 10, [4, 3, 3]),
        (0, [0.3, 0.1, 0], [2, 1, 1], 10, [5, 3, 2]),
        (1, [0.96876, 0.03124], [1, 1], 16, [0, 16]),
        (1, [0.96874, 0.03126], [1, 1], 16, [1, 15]),
        (10_000, [1.0, 0.0], [10_000, 1], 4, [0, 4]),
        (1, [float("nan"), 0], [1, 1], 16, [8, 8]),
    ],
)
def test_past_usage_bends_the_weights(k, usage, weights, total, shares):
    queues = [(0, weight, -1, 1000) for weight in weights]
    assert divided(total, queues, k=k, usage=usage)[0] == shares


def test_usage_so_high_that_nobody_gets_anything_leaves_the_pot():
    assert divided(8, [(0, 1, -1, 9), (0, 1, -1, 9)], k=10, usage=[1.0, 1.0]) == ([0, 0], 8)


def test_lower_band_does_not_win_what_rounding_takes_from_the_higher():
    queues = [(2, 2, -1, 5), (2, 2, -1, 5), (0, 2, -1, 5)]
    options = {"priority": [2, 2, 1]}
    assert divided(5, queues, **options)[0] == [3, 2, 0]
    assert divided(5, queues, rules=flags.ALL, **options)[0] == [2, 2, 1]


def test_left_over_unit_is_cut_to_what_the_queue_can_use():
    queues = [(0, 1, -1, 1.7), (0, 1, -1, 2.0)]
    assert divided(3, queues)[0] == pytest.approx([1.7, 1.3])
    assert divided(3, queues, rules=flags.ALL)[0] == [2, 1]


def test_fraction_of_a_device_goes_out_whole():
    assert divided(3.5, [(3, 1, -1, 5)]) == ([3.5], 0)


TREES = [
    # total, [(parent, deserved, weight, request, priority)], shares
    (3, [(-1, 3, 0, 3, 0), (0, 3, 0, 3, 0), (1, 2, 0, 2, 0), (1, 1, 0, 1, 0)], [3, 3, 2, 1]),
    (4, [(-1, 3, 1, 100, 0), (0, 2, 1, 100, 0), (-1, 1, 1, 100, 0), (2, 2, 1, 100, 0)],
     [3, 3, 1, 2]),
    (12, [(-1, 3, 1, 100, 0), (0, 2, 1, 100, 0), (-1, 1, 7, 100, 0), (2, 2, 1, 100, 0)],
     [4, 4, 8, 8]),
    (12, [(-1, 1, 7, 100, 1), (0, 1, 1, 100, 0), (-1, 1, 1, 100, 2), (2, 1, 1, 100, 0)],
     [1, 1, 11, 11]),
]  # fmt: skip


@pytest.mark.parametrize(("total", "queues", "shares"), TREES)
def test_children_divide_their_parents_share(total, queues, shares):
    parents = [queue[0] for queue in queues]
    n = len(queues)
    free = [UNLIMITED] * n
    claims = Claims(
        deserved=[gpus(queue[1]) for queue in queues],
        weight=[queue[2] for queue in queues],
        limit=free,
        request=[gpus(queue[3]) for queue in queues],
        usage=[0.0] * n,
    )
    nothing = Claims([0] * n, free, [0.0] * n, [0] * n, [0.0] * n)
    division = Division([queue[4] for queue in queues], list(range(n)))
    children = [[row for row in range(n) if parents[row] == parent] for parent in range(n)]
    roots = [row for row in range(n) if parents[row] < 0]
    fair = division.divide_tree((0, 0, gpus(total)), (nothing, nothing, claims), roots, children)
    assert [share[2] / GPU_MICRO for share in fair] == shares
