"""Programs with one mistake each, and the invariants by which the worlds must see it.

`python -m tests.worlds.mutants [NAME …]` looks for the first seed that shows each; exit 1 if one
is seen by none of `SEEDS`.
"""

import argparse
import logging
import sys
from typing import Any, Final, NamedTuple

import msgspec
import pytest

import kai_es.binder.leased
import kai_es.binder.reservations
import kai_es.binder.results
import kai_es.binder.service
import kai_es.cycle.loop
import kai_es.intake.publisher
import kai_es.snapshot.display
import kai_es.snapshot.parking
import kai_es.status.writer
import projectors.usage
import streams.snapshot
from kai_es.binder.plan import Course
from kai_es.binder.progress import Progress
from kai_es.cycle.loop import CycleLoop
from kai_es.events.catalogue import BIND_REQUESTS
from kai_es.events.decisions import Gate, Verdict
from kai_es.ports.eventlog import Mark
from kai_es.scheduler.columns.nodes import NodeFacts
from projectors.runs import Runs
from projectors.usage import Usage
from tests.worlds import scripts
from tests.worlds.failure import WorldError
from tests.worlds.world import run_seed

SEEDS: Final = range(200)


class Mutant(NamedTuple):
    """A mistake.

    expected: the invariants of which one must be seen to be violated.
    make:     makes it, with a `MonkeyPatch`.
    script:   of the worlds that show it, None = the usual ones.
    first:    a seed that is known to show it, to be tried first.
    """

    expected: tuple[str, ...]
    make: Any
    script: Any = None
    first: int = 0


MUTANTS: dict[str, Mutant] = {}


def mutant(*expected, script=None, first=0):
    """Enter what makes a mistake under its name."""

    def enter(make):
        MUTANTS[make.__name__] = Mutant(expected, make, script, first)
        return make

    return enter


def verdict(name, seeds=SEEDS):
    """(seed, text) of the first world that sees it, (None, "") if none does.

    Raises:
        AssertionError: it is seen, but by another invariant than expected.
    """
    one = MUTANTS[name]
    order = [one.first, *(seed for seed in seeds if seed != one.first)]
    for seed in order[:1] if one.script else order:
        with pytest.MonkeyPatch.context() as patch:
            one.make(patch)
            try:
                run_seed(scripts.SEED if one.script else seed, one.script)
            except WorldError as exc:
                text = str(exc)
                found = any(f"invariant {number} at" in text for number in one.expected)
                assert found, f"{name}: {text}"
                return seed, text
    return None, ""


# -- requests and binds


@mutant("1", "7", first=2)
def open_requests_are_forgotten(patch):
    """A pod with an open request looks as if it had none."""
    real = kai_es.snapshot.display.task_state
    patch.setattr(kai_es.snapshot.display, "task_state", lambda seen, _: real(seen, ()))


@mutant("2", script=scripts.binders_away)
def requests_are_good_for_ever(patch):
    begin, looked, prepared = Course.begin, Course.looked, Course.prepared
    patch.setattr(Course, "begin", lambda self, _: begin(self, 0))
    patch.setattr(Course, "resumed", lambda self, _: begin(self, 0))
    patch.setattr(Course, "looked", lambda self, pod, _: looked(self, pod, 0))
    patch.setattr(Course, "prepared", lambda self, rv, _: prepared(self, rv, 0))


@mutant("3", "21", script=scripts.binders_restart)
def marks_go_past_open_requests(patch):
    patch.setattr(
        Progress,
        "mark",
        lambda self: Mark(self._next, str(self._results_from(self._next))),
    )


@mutant("4")
def nodes_have_twice_the_devices(patch):
    real = NodeFacts.gpus.fget
    patch.setattr(NodeFacts, "gpus", property(lambda self: real(self) * 2))


@mutant("5", first=12)
def reservations_go_while_they_are_used(patch):
    real = kai_es.binder.reservations.to_delete

    def to_delete(group, holders, *, is_open):
        rest = [one for one in holders if one.is_reservation]
        return real(group, rest, is_open=is_open)

    patch.setattr(kai_es.binder.reservations, "to_delete", to_delete)


@mutant("5", first=4)
def nothing_is_reserved(patch):
    patch.setattr(kai_es.binder.service, "Reserving", lambda _: _Nothing())


class _Nothing:
    """A preparation that concerns nobody."""

    def concerns(self, request):
        return False


@mutant("6", "10")
def requests_go_before_their_cycle(patch):
    """Two transactions instead of one."""
    real = CycleLoop._publish

    async def publish(self, power, lease, out, cycle):
        log = self._set.log
        if not isinstance(log, _InTwo):
            self._set = self._set._replace(log=_InTwo(log))
        await real(self, power, lease, out, cycle)

    patch.setattr(CycleLoop, "_publish", publish)


class _InTwo:
    def __init__(self, log):
        self._log = log

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, epoch, batch):
        batch = list(batch)
        first = [n for n, out in enumerate(batch) if out.topic == BIND_REQUESTS]
        found = {}
        for part in (first, [n for n in range(len(batch)) if n not in first]):
            if part:
                positions = await self._log.append(epoch, [batch[n] for n in part])
                found |= dict(zip(part, positions, strict=True))
        return [found[n] for n in range(len(batch))]


@mutant("7", "17", first=4)
def the_gate_is_not_asked_before_evicting(patch):
    real = kai_es.cycle.loop.turn

    def turn(world, config, inputs, *, epoch, decide):
        def careless(snapshot, config, inputs):
            gate = Gate(verdict=Verdict.OPEN)
            return decide(snapshot, config, msgspec.structs.replace(inputs, gate=gate))

        return real(world, config, inputs, epoch=epoch, decide=careless)

    patch.setattr(kai_es.cycle.loop, "turn", turn)


# -- the log


def _lease_mutant(module, kind, **rest):
    def make(patch):
        patch.setattr(module, "check_lease", lambda *_: None)

    make.__name__ = f"{module.__name__.rpartition('.')[2]}_at_any_age_of_the_lease"
    mutant("12", script=scripts.late_leader(kind, **rest))(make)


_lease_mutant(kai_es.intake.publisher, "informer")
_lease_mutant(streams.snapshot, "snapshot")
_lease_mutant(kai_es.cycle.loop, "scheduler")
_lease_mutant(kai_es.binder.results, "binder", is_answered=True)
_lease_mutant(kai_es.binder.leased, "binder")


@mutant("15", first=1)
def what_cannot_be_read_takes_no_room(patch):
    """A node stays open beside a pod on it that is parked."""
    patch.setattr(kai_es.snapshot.parking, "closed_node", lambda *_: "")


# -- replay and usage


@mutant("17")
def a_decision_knows_more_than_is_recorded(patch):
    real = kai_es.cycle.loop.turn
    seen = []

    def turn(world, config, inputs, *, epoch, decide):
        def moody(snapshot, config, inputs):
            seen.append(inputs.cycle)
            decision = decide(snapshot, config, inputs)
            ops = decision.ops[:-1] if len(seen) % 2 else decision.ops
            return msgspec.structs.replace(decision, ops=ops)

        return real(world, config, inputs, epoch=epoch, decide=moody)

    patch.setattr(kai_es.cycle.loop, "turn", turn)


@mutant("18", "21", first=1)
def books_forget_queues_when_they_are_opened(patch):
    real = Usage.restore

    def restore(self, objects, **rest):
        real(self, objects, **rest)
        self._paths.clear()
        self._queue_names = type(self._queue_names)()

    patch.setattr(Usage, "restore", restore)


@mutant("19")
def what_ends_does_so_a_moment_too_late(patch):
    real = Runs._end

    def end(self, key, run, at):
        real(self, key, run, at._replace(time_ms=at.time_ms + 1))

    patch.setattr(Runs, "_end", end)


@mutant("20")
def only_running_pods_hold_their_node(patch):
    real = projectors.usage.is_allocated
    patch.setattr(
        projectors.usage, "is_allocated", lambda pod: real(pod) and pod.phase == "Running"
    )


# -- liveness


@mutant("21")
def news_wakes_no_cycle(patch):
    patch.setattr(CycleLoop, "_applied", lambda *_: None)


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.worlds.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="so many are tried")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    n_unseen = 0
    for name in options.names or MUTANTS:
        try:
            seed, text = verdict(name, range(options.seeds))
        except AssertionError as exc:
            seed, text = None, str(exc)
        n_unseen += seed is None
        print(f"{name}: seed {seed}: {text.splitlines()[0][:200] if text else ''}", flush=True)
    return 1 if n_unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
