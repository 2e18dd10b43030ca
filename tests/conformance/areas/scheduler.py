"""Cases of the scheduler: actions on one session, or rounds of all actions (README §4)."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kai_es.events.decisions import CycleInputs
from kai_es.kube.devices import Consumer, ResourceClaim
from kai_es.scheduler import flags as rules
from kai_es.scheduler.decide import open_session, run_action
from kai_es.scheduler.framework.claims import Claims
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.hooks import SessionHooks
from kai_es.snapshot.status import TaskStatus
from tests.conformance.scheduler_cases.compare import View, count_differences, differences
from tests.conformance.scheduler_cases.world import NOW_MS, Carried, Case, World, config_of

WAITING_TAGS: frozenset[str] = frozenset()
"""Features that the scheduler does not have yet; cases with one are listed as waiting."""


def waiting(case: Case) -> str:
    """Why a case cannot be run yet, "" = it can."""
    return ", ".join(sorted(WAITING_TAGS & set(case["tags"])))


NEEDS: dict[str, rules.Flags] = {
    "reclaim/reclaim/026-2n-5g-2q-3j": frozenset({rules.CONSOLIDATING_RECLAIM_FREE}),
}
"""Cases that expect what docs/differences.md lists."""


def flags_of(case: Case) -> rules.Flags:
    return NEEDS.get(case["id"], rules.NONE)


def check(case: Case, flags: rules.Flags) -> str | None:
    found = next(_run(case, flags), None)
    return None if found is None else found


def main(paths: Sequence[Path], flags: rules.Flags) -> tuple[int, int]:
    from tests.conformance.__main__ import cases_in

    passed = failed = 0
    for case in cases_in(paths):
        reason = waiting(case)
        if reason:
            print(f"WAITING {case['id']}: {reason}")
            continue
        try:
            found = check(case, flags | flags_of(case))
        except Exception as exc:  # noqa: BLE001 - one broken case must not hide the others
            found = f"{type(exc).__name__}: {exc}"
        if found is None:
            passed += 1
        else:
            failed += 1
            print(f"FAILED {case['id']}: {found}")
    return passed, failed


def _run(case: Case, flags: rules.Flags) -> Iterator[str]:
    world = World(case)
    if case["kind"] == "multi_round":
        yield from _rounds(world, flags)
        return
    world.store()
    session = _session(world, flags)
    before = {task: View(session, world).status(task) for task in world.tasks}
    for action in case["actions"]:
        run_action(session, action)
        yield from _after_action(session, case, action)
    view = View(session, world)
    yield from differences(view)
    counts = case["expect"]["counts"]
    yield from count_differences(session, counts, binds="bind_error" not in case["config"])
    if (
        "bind_error" not in case["config"]
        and counts
        and not any(counts.values())
        and not case["expect"]["jobs"]
    ):
        for task, status in before.items():
            if view.status(task) is not status:
                yield f"task {task} is {view.status(task).name}, want it left {status.name}"


def _after_action(session: Session, case: Case, action: str) -> Iterator[str]:
    wanted = (case["expect"].get("tasks_with_fit_errors_after") or {}).get(action)
    if wanted is not None and len(session.failures.tasks) != wanted:
        yield f"{len(session.failures.tasks)} tasks have fit errors after {action}, want {wanted}"
    limits = case["expect"].get("solver_attempts")
    if limits and action == "reclaim":
        got = session.hooks.counters.get("solver_attempts", 0)
        if not limits.get("min", 0) <= got <= limits.get("max", got):
            yield f"{got} searches for victims, want {limits}"


def _rounds(world: World, flags: rules.Flags) -> Iterator[str]:
    case = world.case
    rounds = case["rounds"]
    for _ in range(rounds["until_match"]):
        session = yield from _round(world, flags)
        _carry(world, session)
        time.sleep(rounds["sleep_ms_between"] / 1000)
    world.store()
    still = _session(world, flags)
    still.failures = session.failures
    yield from differences(View(still, world))
    for number in range(rounds["after_match"]):
        session = yield from _round(world, flags)
        for found in differences(View(session, world)):
            yield f"{number + 1} rounds after the match: {found}"
        _carry(world, session)


def _round(world: World, flags: rules.Flags) -> Any:
    world.store()
    session = _session(world, flags)
    for action in world.case["actions"]:
        run_action(session, action)
        yield from _after_action(session, world.case, action)
    yield from count_differences(session, world.case["expect"]["counts"], binds=True)
    return session


def _session(world: World, flags: rules.Flags) -> Session:
    raw = world.case["config"]
    hooks = SessionHooks(
        skip_plugins=frozenset(raw["plugins_skipped"]),
        gpu_memory_default=100,
        victim_invariant_error=raw.get("victim_invariant_error", ""),
    )
    inputs = CycleInputs(shard="case", cycle=1, now_ms=NOW_MS, flags=tuple(sorted(flags)))
    return open_session(world.snapshot, config_of(world.case), inputs, hooks)


def _carry(world: World, session: Session) -> None:
    """The next state (README §4.2)."""
    view = View(session, world)
    for task, kept in world.tasks.items():
        status, node = view.status(task), view.node(task) or ""
        stays = world.job_of[task].get("stays_releasing_after_eviction")
        if status is TaskStatus.PIPELINED or (status is TaskStatus.RELEASING and not stays):
            world.tasks[task] = Carried(TaskStatus.PENDING, "", kept.groups)
            continue
        if status is TaskStatus.BINDING:
            status = TaskStatus.RUNNING
        world.tasks[task] = Carried(status, node, view.groups(task))
    if session.claims is not None:
        for name, claim in world.claims.items():
            world.claims[name] = _carried_claim(session.claims, claim)


def _carried_claim(claims: Claims, claim: ResourceClaim) -> ResourceClaim:
    """What a claim holds when everything that leaves is gone."""
    key, allocation, users = claim.uid, None, ()
    while claims.users_of(key):
        staying = tuple(uid for uid in claims.users_of(key) if claims.stays(uid))
        if staying:
            allocation, users = claims.allocation_of(key), staying
        key += "+"
    return msgspec.structs.replace(
        claim,
        allocation=allocation,
        reserved_for=tuple(Consumer("pods", uid, uid) for uid in users),
    )
