"""What must hold at the end of a world, when everything has come to rest."""

import asyncio
import hashlib
import math

from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.replay import replay
from kai_es.audit.verify import verify
from kai_es.binder.reservations import FULL_S
from kai_es.eventlog.memory import MemoryLog
from kai_es.events.requests import Bound, Refused
from kai_es.intake.kinds import SOURCES
from kai_es.ports.books import Place
from kai_es.reader import View
from kai_es.simulate.books import MemoryHistory, MemoryUsage
from kai_es.simulate.kinds import NODE, KindTable
from kai_es.simulate.kubelet import OUTCOMES
from kai_es.simulate.virtual import VirtualClock
from kai_es.snapshot import checkpoint
from kai_es.status.planner import Planner
from tests.worlds.accounts import identity
from tests.worlds.processes import local_books

STILL_S = 2.0
"""What still happened in the cluster is in the log after that."""

REST_S = 8.0
"""Longer than a follower of the log sleeps: what is folded is committed by then."""


async def look_back(world):
    """Check everything; the digest of the world's log."""
    await _reservations(world)
    world.site.stop()
    await asyncio.sleep(STILL_S)
    for slot in world.slots:
        if not slot.name.startswith(("scheduler", "books")):
            slot.is_down = True
            slot.crash()
    await asyncio.sleep(REST_S)
    log = MemoryLog(store=world.store)
    view = View(log, VirtualClock())
    await view.catch_up()
    _requests(world)
    _present(world, view.world)
    _equal_views(world, view.world)
    _statuses(world, view.world)
    await _verified(world, log)
    await _replayed(world, log)
    await _rebuilt(world, log)
    _accounts(world)
    _kubelets(world)
    return _digest(world)


def _statuses(world, state):
    """Every status says what the log says."""
    if not world.status_slots():
        return
    planner = Planner(state)
    planned = [planner.group(uid, 0, waited_s=math.inf) for uid in state.snapshot.groups.rows]
    planned += [planner.pod(uid, 0) for uid in state.snapshot.pods]
    planned += planner.queues()
    for plan in planned:
        if plan is not None:
            world.failures.violated("21", f"a status is wrong long after the last fault: {plan}")


def _requests(world):
    """Invariants 1 and 3, against the API server's truth."""
    truth = world.truth
    for uid, (node, node_uid) in truth.bound.items():
        finals = [
            final
            for request in truth.requests[uid].values()
            for final in truth.finals.get(request.request_id, ())
            if isinstance(final, Bound)
        ]
        if not finals and _could_not_know(truth, uid):
            continue
        is_restored = uid in truth.restored  # bound, forgotten, and bound again, perhaps
        if len({final.request_id for final in finals}) != 1 and not (is_restored and finals):
            world.failures.violated("1", f"{uid}, bound to {node}, has the results {finals}")
        elif not is_restored and any(
            _is_elsewhere(truth, final.node_uid, node_uid) for final in finals
        ):
            world.failures.violated("1", f"{uid} is on {node_uid}, results name {finals}")
    for requests in truth.requests.values():
        for request_id in requests:
            if request_id not in truth.finals:
                world.failures.violated("3", f"{request_id} has no final result")


def _could_not_know(truth, uid):
    """Whether the answer to a bind was lost and the pod was gone when the binder looked again."""
    finals = [f for request in truth.requests[uid] for f in truth.finals.get(request, ())]
    is_gone = any(isinstance(final, Refused) and final.code == "pod-gone" for final in finals)
    return is_gone and uid not in truth.alive.get("Pod", {})


def _is_elsewhere(truth, ordered, found):
    """Whether a pod is on another node than ordered, which was still there."""
    return ordered != found and ordered in truth.alive.get("Node", {})


def _present(world, folded):
    """Invariant 14: the log shows what the API server has."""
    for text in absences(world.site, folded):
        world.failures.violated("14", text)


def absences(site, folded):
    """In what the log and the API server differ, in words."""
    kinds = {kind.kind: kind for kind in KindTable().kinds}
    for source in SOURCES:
        live = {
            raw["metadata"]["uid"]: int(raw["metadata"]["resourceVersion"])
            for raw in site.live(kinds[source.kind])
        }
        entries = folded.objects.live.get(source.kind, {})
        if source.heartbeats:  # versions that differ in noise alone are not published
            live = dict.fromkeys(live, 0) | {
                uid: entries[uid].rank.rv for uid in live if uid in entries
            }
        found = {uid: entry.rank.rv for uid, entry in entries.items()}
        if live != found:
            differ = sorted(set(live.items()) ^ set(found.items()))
            yield f"{source.kind}: log and API differ in {differ[:4]}"


def _equal_views(world, folded):
    """Invariant 9: every reader folds to the same, and so does a reloaded checkpoint."""
    digest = checkpoint.digest(folded)
    for slot in world.slots:
        if slot.name.startswith("scheduler"):
            seen = slot.part.view.world
            if seen.offset == folded.offset and checkpoint.digest(seen) != digest:
                world.failures.violated("9", f"{slot.name} has folded to something else")
            if seen.offset != folded.offset:
                text = f"{slot.name} is at {seen.offset}, the log at {folded.offset}"
                world.failures.violated("21", text)
    again = checkpoint.decode(checkpoint.encode(folded).payload)
    if checkpoint.digest(again) != digest:
        world.failures.violated("9", "a reloaded checkpoint is something else")


async def _verified(world, log):
    report = await verify(log, checkpoints=world.checkpoints)
    for found in report.violations[:3]:
        world.failures.violated(found.invariant, f"verify: {found.where}: {found.text}")


async def _replayed(world, log):
    """Invariant 17: every cycle from the beginning, or those after a checkpoint from there."""
    cycles, checkpoints = await recorded_cycles(log), None
    heads = await world.checkpoints.heads() if world.seed % 2 else ()
    if heads:
        since, checkpoints = heads[len(heads) // 2].offset, world.checkpoints
        cycles = [recorded for recorded in cycles if recorded.cycle.offset > since]
    async for again in replay(log, cycles, checkpoints=checkpoints):
        if not again.is_identical:
            cycle = again.recorded.cycle
            world.failures.violated("17", f"cycle {cycle} replays otherwise: {again.difference}")
            return


async def _rebuilt(world, log):
    """Invariant 18: from empty, and from a checkpoint, the books are the same."""
    heads = await world.checkpoints.heads()
    live = await world.usage.digest(), await world.history.digest()
    at = world.usage.at.offset, world.history.at.offset
    usage, history = MemoryUsage(), MemoryHistory()
    await _keep(log, usage, history, world.checkpoints)
    if at == (usage.at.offset, history.at.offset):
        if live != (await usage.digest(), await history.digest()):
            world.failures.violated("18", "the books, kept anew, are not the same")
    else:
        text = f"the books are at {at}, the log ends at {usage.at.offset}"
        world.failures.violated("21", text)
    if heads:
        head = heads[len(heads) // 2]
        for books in (usage, history):
            await books.rewind(Place(head.offset, head.time_ms))
        await _keep(log, usage, history, world.checkpoints)
        if live != (await usage.digest(), await history.digest()):
            world.failures.violated("18", f"the books from checkpoint {head.offset} differ")


async def _keep(log, usage, history, checkpoints):
    await local_books(log, VirtualClock(), usage, history, checkpoints, takes=False).catch_up()


async def _reservations(world):
    """Invariant 5: no device is in use without a reservation pod, and none is kept for nobody.

    For the latter a binder has until its next look at everything; a calm world has the time.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + (FULL_S + STILL_S if world.is_calm else 0)
    while True:
        used = set(world.truth.sharers())
        kept = {
            (node["metadata"]["name"], group)
            for node in world.site.live(NODE)
            for group in world.truth.reserves(node["metadata"]["name"])
        }
        if kept == used or loop.time() >= until_s:
            break
        await asyncio.sleep(5)
    if used - kept:
        world.failures.violated("5", f"shared without a reservation: {sorted(used - kept)}")
    if kept - used and world.is_calm:
        world.failures.violated("5", f"reserved for nobody: {sorted(kept - used)}")


def _accounts(world):
    """Invariants 19 and 20: exactly what the API server did, as of when the log shows it."""
    wrong = identity(world.usage.books, world.usage.at.time_ms)
    if wrong:
        world.failures.violated("19", wrong)
    if not world.site.n_restores:  # numbers of two histories do not compare
        for text in world.truth.use.differences(world.usage.books):
            world.failures.violated("20", text)


def _kubelets(world):
    """Invariant 20, as far as pipeline latency lets it be seen: who ran is in the books.

    In a calm world nobody is sent to a node that has no room.
    """
    booked = {}
    for (uid, *_), row in world.usage.books.tables["allocations"].items():
        booked[uid] = booked.get(uid, 0) + min(row.end, world.usage.at.time_ms) - row.start
    slack_ms = 1_000 if world.is_calm else 60_000
    for run in world.site.runs.all():
        # A pod that etcd forgot to be bound and that is bound again has one run with a gap.
        is_restored = world.site.n_restores and run.pod_uid in world.truth.restored
        if (
            run.ended_ms
            and not is_restored
            and abs(booked.get(run.pod_uid, 0) - run.ended_ms + run.bound_ms) > slack_ms
        ):
            text = f"booked are {booked.get(run.pod_uid, 0)} ms of {run}"
            world.failures.violated("20", text)
        if world.is_calm and run.outcome not in ("", *OUTCOMES):
            world.failures.violated("4", f"a kubelet refused {run}")


def _digest(world):
    sha = hashlib.sha256()
    for part, partition in sorted(world.store.partitions.items()):
        for entry in partition.entries:
            sha.update(repr((part, entry.position, entry.key)).encode())
            sha.update(entry.value or b"")
    return sha.hexdigest()
