"""Worked examples of fairness §6, and what kai-es does better by default."""

import math

import pytest

from kai_es.kube.labels import GPU_MICRO, UNLIMITED
from kai_es.scheduler import flags
from kai_es.scheduler.fairness import reclaim
from kai_es.scheduler.fairness.reclaim import (
    Fate,
    Objection,
    QueueBook,
    Reclaimer,
    ScenarioCheck,
    Unit,
    VictimQueue,
    VictimTask,
    leveled,
)
from kai_es.scheduler.fairness.shares import allocatable_share

FREE = (UNLIMITED,) * 3
ONE_GPU = (0, 0, GPU_MICRO)
GPU_ONLY = (False, False, True)


def gpus(devices):
    return (0, 0, UNLIMITED if devices == -1 else round(devices * GPU_MICRO))


def a_book(deserved, fair, used, *, fixed=0.0, cpu=None):
    """GPUs only, or with a CPU (fair share, allocated)."""

    def vector(devices, cores=0):
        return (cores, *gpus(devices)[1:])

    fair_cpu, used_cpu = cpu or (0, 0)
    return QueueBook(
        deserved=gpus(deserved),
        fair_share=vector(fair, fair_cpu),
        allocatable=allocatable_share(gpus(deserved), vector(fair, fair_cpu), FREE),
        allocated=vector(used, used_cpu),
        non_preemptible=gpus(fixed),
    )


class World:
    """Queues by name: (parent, book)."""

    def __init__(self, **queues):
        self.names = list(queues)
        self.parents = [self.names.index(p) if p else -1 for p, _ in queues.values()]
        self.books = [book for _, book in queues.values()]

    def path(self, name):
        path = [self.names.index(name)]
        while self.parents[path[-1]] >= 0:
            path.append(self.parents[path[-1]])
        return tuple(path)

    def objection(self, who, takes, *, preemptible=True, multiplier=1.0, rules=flags.ALL, ask=1.0):
        reclaimer = Reclaimer(self.path(who), gpus(ask), GPU_ONLY, preemptible)
        check = ScenarioCheck(
            reclaimer, lambda row: self.books[row], multiplier=multiplier, flags=rules
        )
        victims = [
            VictimQueue(
                self.path(name),
                [unit if isinstance(unit, Unit) else Unit(gpus(unit), GPU_ONLY) for unit in units],
            )
            for name, units in takes.items()
        ]
        verdict = check.objection(victims, self.parents)
        return None if verdict is None else verdict.objection


def flat(p1=(3, 3, 2), p2=(2, 2, 3), default=(5, 5, 5)):
    return World(
        default=("", a_book(*default)),
        p1=("default", a_book(*p1)),
        p2=("default", a_book(*p2)),
    )


@pytest.mark.parametrize(
    ("world", "options", "allowed"),
    [
        (flat(), {}, True),
        (flat(p2=(2, 2, 2), default=(5, 5, 4)), {}, False),
        (flat(p2=(2, 2, 1)), {}, False),
        (flat(p2=(2, 3, 3)), {}, True),
        (flat(p1=(3, 3, 3), default=(5, 10, 6)), {}, False),
        (flat(p1=(3, 3, 3), default=(5, 5, 6)), {}, False),
        (flat(p1=(2, 3, 2)), {"preemptible": False}, True),
        (flat(p1=(2, 3, 2), default=(3, 5, 5)), {"preemptible": False}, True),
        (flat(p1=(2, 3, 2), default=(1, 1, 3)), {}, True),
    ],
)
def test_single_department(world, options, allowed):
    assert (world.objection("p1", {"p2": [1]}, **options) is None) == allowed


def test_non_preemptible_job_must_fit_the_quota_on_every_level():
    world = World(
        default=("", a_book(3, 5, 5, fixed=3)),
        p1=("default", a_book(2, 3, 2)),
        p2=("default", a_book(2, 2, 3)),
    )
    refused = world.objection("p1", {"p2": [1]}, preemptible=False)
    assert refused is Objection.OVER_DESERVED


def chains(left_top=(1, 1, 0)):
    return World(
        lt=("", a_book(*left_top)),
        lm=("lt", a_book(1, 1, 0)),
        ll=("lm", a_book(1, 1, 0)),
        rt=("", a_book(1, 1, 2)),
        rm=("rt", a_book(1, 1, 2)),
        rl=("rm", a_book(1, 1, 2)),
    )


def test_three_levels():
    assert chains().objection("ll", {"rl": [2]}) is None
    assert chains((1, 1, 1)).objection("ll", {"rl": [2]}) is Objection.SIBLING_WORSE_OFF


def mixed():
    return World(
        top=("", a_book(2, 2, 2)),
        mid1=("top", a_book(1, 1, 0.5)),
        leaf1=("mid1", a_book(1, 1, 0)),
        leaf2=("mid1", a_book(0, 0, 0.5)),
        mid2=("top", a_book(1, 1, 1.5)),
        right=("mid2", a_book(1, 1, 1.5)),
    )


def test_taking_from_a_sibling_too_can_make_it_fair():
    refused = mixed().objection("leaf1", {"right": [1.5]})
    assert refused is Objection.SIBLING_WORSE_OFF
    assert mixed().objection("leaf1", {"right": [1.5], "leaf2": [0.5]}) is None


def departments(cpu=None):
    first, second = cpu or (None, None)
    return World(
        d1=("", a_book(4, 4, 4, cpu=first)),
        p1=("d1", a_book(3, 1, 0)),
        p2=("d1", a_book(1, 3, 4)),
        d2=("", a_book(3, 3, 7, cpu=second)),
        v=("d2", a_book(3, 3, 7)),
    )


def test_saturation_multiplier():
    assert departments().objection("p1", {"v": [1]}) is None
    refused = departments().objection("p1", {"v": [1]}, multiplier=1.6)
    assert refused is Objection.SIBLING_WORSE_OFF


def test_resources_that_nobody_touches_do_not_count():
    world = departments(cpu=((1000, 3000), (1000, 1000)))
    assert world.objection("p1", {"v": [1]}) is None


@pytest.mark.parametrize(
    ("deserved", "fair", "used", "keep"),
    [(4, 4, 0, False), (4, 4, 2, False), (0, 4, 4, True), (2, 4, 2, True), (-1, 4, 3, True)],
)
def test_victim_filter_for_a_reclaimer_within_its_quota(deserved, fair, used, keep):
    world = World(a=("", a_book(4, 4, 0)), b=("", a_book(deserved, fair, used)))
    reclaimer = Reclaimer(world.path("a"), ONE_GPU, GPU_ONLY, True)
    objection = reclaim.may_be_victim(reclaimer, world.path("b"), lambda row: world.books[row])
    assert (objection is None) == keep


@pytest.mark.parametrize(("used", "keep"), [(3, False), (5, True)])
def test_victim_filter_for_a_reclaimer_beyond_its_quota(used, keep):
    world = World(a=("", a_book(0, 4, 0)), b=("", a_book(2, 4, used)))
    reclaimer = Reclaimer(world.path("a"), ONE_GPU, GPU_ONLY, True)
    objection = reclaim.may_be_victim(reclaimer, world.path("b"), lambda row: world.books[row])
    assert (objection is None) == keep


def test_leveled_queues():
    world = mixed()
    name = world.names.__getitem__
    pair = leveled(world.path("leaf1"), world.path("right"))
    assert tuple(map(name, pair)) == ("mid1", "mid2")
    pair = leveled(world.path("leaf1"), world.path("leaf2"))
    assert tuple(map(name, pair)) == ("leaf1", "leaf2")
    assert tuple(map(name, leveled(world.path("mid1"), world.path("leaf1")))) == ("mid1", "mid1")


def test_can_reclaim_within_fair_share_and_quota():
    def asked(book, ask, *, preemptible):
        return reclaim.can_reclaim(book, gpus(ask), preemptible=preemptible)

    assert asked(a_book(0, 2, 1), 1, preemptible=True) is None
    assert asked(a_book(0, 2, 1), 1.5, preemptible=True) is Objection.OVER_FAIR_SHARE
    assert asked(a_book(1, 2, 0), 1, preemptible=False) is None
    assert asked(a_book(0, 2, 0), 1, preemptible=False) is Objection.OVER_DESERVED


def test_saturation():
    assert reclaim.saturation(3, 2) == 1.5
    assert reclaim.saturation(1, 0) == math.inf
    assert reclaim.saturation(0, 0) == 0
    assert reclaim.saturation(9, UNLIMITED) == 0


def a_task(fate=Fate.LOST):
    return VictimTask("default", ONE_GPU, GPU_ONLY, fate)


@pytest.mark.parametrize(
    ("n", "minimum", "sizes"), [(1, 2, [1]), (3, 1, [1, 1, 1]), (2, 2, [2]), (2, 0, [1, 1])]
)
def test_victim_units(n, minimum, sizes):
    units = reclaim.victim_units(
        [a_task()] * n, {"default": minimum}, allow_consolidating=True, flags=flags.ALL
    )
    assert [unit.amounts[2] // GPU_MICRO for unit in units] == sizes


def test_moved_tasks_are_free_under_compat_lost_without_the_switch_judged_by_default():
    tasks = [a_task(Fate.MOVED), a_task(), a_task(Fate.KEPT)]

    def units(rules, *, allow):
        found = reclaim.victim_units(tasks, {"default": 3}, allow_consolidating=allow, flags=rules)
        return [(unit.amounts[2] // GPU_MICRO, unit.moved) for unit in found]

    assert units(flags.ALL, allow=True) == [(1, False)]
    assert units(flags.ALL, allow=False) == [(3, False)]
    assert units(flags.NONE, allow=True) == [(1, False), (1, True)]
    assert units(flags.NONE, allow=False) == [(2, False)]


def test_over_served_queue_does_not_restart_an_under_served_one():
    """Field case 2: A (deserved 4, runs 6) asks for 4; B (deserved 8, runs 4) would be moved."""
    world = World(a=("", a_book(4, 10, 6)), b=("", a_book(8, 8, 4)))
    moved = Unit(ONE_GPU, GPU_ONLY, moved=True)
    refused = world.objection("a", {"b": [moved]}, rules=flags.NONE, ask=4)
    assert refused is Objection.DISRUPTS_DESERVED
    reclaimer = Reclaimer(world.path("a"), gpus(4), GPU_ONLY, True)
    dropped = reclaim.may_be_victim(reclaimer, world.path("b"), lambda row: world.books[row])
    assert dropped is Objection.DISRUPTS_DESERVED
    assert "over deserved, would disrupt a queue below deserved" in dropped.value


def test_reclaimer_within_its_quota_may_have_others_moved():
    world = World(a=("", a_book(2, 2, 0)), b=("", a_book(3, 3, 3)))
    moved = Unit(ONE_GPU, GPU_ONLY, moved=True)
    assert world.objection("a", {"b": [moved]}, rules=flags.NONE, ask=2) is None


def test_over_served_queue_may_be_moved():
    world = World(a=("", a_book(4, 4, 0)), b=("", a_book(2, 2, 3)))
    moved = Unit(gpus(2), GPU_ONLY, moved=True)
    assert world.objection("a", {"b": [1, moved]}, rules=flags.NONE) is None


def oversized():
    """Department d2 is above its part because of q2; q1 below it is not."""
    return World(
        d1=("", a_book(4, 4, 0)),
        p=("d1", a_book(0, 4, 0)),
        d2=("", a_book(4, 4, 8)),
        q1=("d2", a_book(4, 4, 2)),
        q2=("d2", a_book(0, 0, 6)),
    )


def test_leaf_below_its_quota_keeps_its_pods_while_its_department_is_above():
    refused = oversized().objection("p", {"q1": [1]}, rules=flags.NONE)
    assert refused is Objection.DISRUPTS_DESERVED
    assert oversized().objection("p", {"q1": [1]}, rules=flags.ALL) is None
    assert oversized().objection("p", {"q2": [1]}, rules=flags.NONE) is None


def test_shielded_leaf_is_no_candidate():
    world = oversized()

    def shielded(name):
        reclaimer = Reclaimer(world.path("p"), ONE_GPU, GPU_ONLY, True)
        return reclaim.is_shielded(reclaimer, world.path(name), lambda row: world.books[row])

    assert shielded("q1")
    assert not shielded("q2")
    world.books[world.names.index("p")] = a_book(4, 4, 0)
    assert not shielded("q1")


def test_reclaimer_within_its_own_quota_may_take_from_any_leaf():
    world = oversized()
    world.books[world.names.index("p")] = a_book(4, 4, 0)
    assert world.objection("p", {"q1": [1]}, rules=flags.NONE) is None


def test_unlimited_quota_of_a_leaf_does_not_shield_an_oversized_department():
    world = oversized()
    world.books[world.names.index("q1")] = a_book(-1, 4, 8)
    assert world.objection("p", {"q1": [1]}, rules=flags.NONE) is None
