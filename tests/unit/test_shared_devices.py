"""Shares of devices: which device a task gets, and that undoing leaves nothing behind."""

import pytest

from kai_es.scheduler import flags
from kai_es.scheduler.columns.resources import CPU_ROW
from kai_es.scheduler.framework.devices import pick_devices
from kai_es.scheduler.framework.fit import ALL_NODES
from kai_es.scheduler.framework.statement import Statement
from tests.scheduler_world import World, a_spec


def a_world(*shares, gpus=2):
    """A node with one running pod per share, each on a device of its own, and a pending half."""
    world = World()
    world.node("n1", gpus)
    world.queue("q")
    for number, share in enumerate(shares):
        world.group(f"run{number}", "n1", spec=a_spec(share), group=f"g{number}")
    world.group("want", "", spec=a_spec(0.5))
    return world


def row_of(session, name):
    return session.columns.rows.pods[name].row


def books(session):
    return session.nodes.amounts.tobytes(), dict(session.nodes.devices[0])


@pytest.mark.parametrize(
    ("rules", "cpu_short", "memory", "leaving"),
    [((), 0, 20_000, 0), ([flags.UNDO_LEAKS_SHARES], 1000, 40_000, 20_000)],
)
def test_undoing_a_move_to_another_device(rules, cpu_short, memory, leaving):
    session = a_world(0.5).session(flags=rules)
    idle = int(session.nodes.idle[CPU_ROW, 0])
    statement = Statement(session)
    start = statement.checkpoint()
    statement.evict(row_of(session, "run0-0"))
    inner = statement.checkpoint()
    statement.pipeline(row_of(session, "run0-0"), 0, ("new",))
    statement.rollback(start)
    device = session.nodes.devices[0]["g0"]
    assert inner.n_ops == 1
    assert idle - int(session.nodes.idle[CPU_ROW, 0]) == cpu_short
    assert (device.used, device.releasing) == (memory, leaving)


def test_what_leaks_outlives_an_undo_of_earlier_work():
    session = a_world(0.5).session(flags=[flags.UNDO_LEAKS_SHARES])
    statement = Statement(session)
    start = statement.checkpoint()
    statement.allocate(row_of(session, "want-0"), 0, ("other",))
    middle = statement.checkpoint()
    statement.evict(row_of(session, "run0-0"))
    statement.pipeline(row_of(session, "run0-0"), 0, ("new",))
    statement.rollback(middle)
    statement.rollback(start)
    assert session.nodes.devices[0]["g0"].used == 40_000
    assert "other" not in session.nodes.devices[0]


def test_a_victim_alone_on_its_device_stays_there():
    session = a_world(0.5).session()
    task, before = row_of(session, "run0-0"), books(session)
    statement = Statement(session)
    statement.evict(task)
    assert pick_devices(session, task, 0, idle=False) == (("g0",), True)
    statement.pipeline(task, 0, ("g0",))
    assert not any(op.valid for op in statement.ops if op.kind != "undo")
    assert books(session) == before
    statement.discard()


def test_a_victim_does_not_stay_when_its_device_was_given_away():
    session = a_world(0.5, gpus=1).session()
    task, want = row_of(session, "run0-0"), row_of(session, "want-0")
    statement = Statement(session)
    statement.evict(task)
    statement.pipeline(want, 0, ("new",))
    groups, waits = pick_devices(session, task, 0, idle=False)
    assert groups == ("new",)
    assert waits
    statement.discard()


def test_equal_devices_are_taken_in_their_order():
    session = a_world(0.5, 0.5).session()
    assert pick_devices(session, row_of(session, "want-0"), 0, idle=True) == (("g0",), False)


@pytest.mark.parametrize(("share", "slots", "fits"), [(0.5, 1, True), (0.75, 1, False)])
def test_only_a_new_share_needs_a_slot_for_its_reservation_pod(share, slots, fits):
    world = World()
    world.node("n1", 2, more={"pods": 1 + slots})
    world.queue("q")
    world.group("run", "n1", spec=a_spec(share), group="g")
    world.group("want", "", spec=a_spec(0.5))
    session = world.session()
    reasons = [check(row_of(session, "want-0"), 0) for check in session.ext.node_checks]
    assert (not any(reasons)) is fits
    session = world.session(flags=[flags.SHARES_TAKE_TWO_SLOTS])
    assert any(check(row_of(session, "want-0"), 0) for check in session.ext.node_checks)


def test_a_share_fits_as_devices_have_room():
    session = a_world(0.75, 0.75, gpus=2).session()
    fit = session.fits.of(row_of(session, "want-0"))
    assert next(fit.walk(row_of(session, "want-0"), ALL_NODES), None) is None
    statement = Statement(session)
    statement.evict(row_of(session, "run0-0"))
    fit = session.fits.of(row_of(session, "want-0"))
    assert bool(fit.free_ok[0])
    assert not fit.idle_ok[0]
    statement.discard()
    assert not session.fits.of(row_of(session, "want-0")).free_ok[0]
