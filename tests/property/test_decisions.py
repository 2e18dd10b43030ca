"""Random clusters: invariants hold, the order of rows does not matter, skipping changes nothing."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kai_es.scheduler import flags
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import close, open_session, run_action
from kai_es.scheduler.digest import decision_digest
from kai_es.scheduler.solve import enough
from kai_es.snapshot.snapshot import Snapshot
from tests.scheduler_world import World
from tests.scheduler_world.invariants import violations
from tests.scheduler_world.random_cluster import PROFILES, RandomCluster

CONFIG = Config(withheld=())
QUICK = 23  # seeds per profile in every run: 207 clusters
LONG = 225  # 2,025 clusters in all


def decided(snapshot, rules=flags.NONE, config=CONFIG):
    inputs = World().inputs(rules)
    session = open_session(snapshot, config, inputs)
    for action in config.actions:
        run_action(session, action)
    return session, close(session), inputs


def shuffled(snapshot, seed):
    """The same rows stored in another order."""
    other = Snapshot()
    rows = [
        *[lambda n=n: other.set_node(n.node, rv=n.rv) for n in snapshot.nodes.rows.values()],
        *[lambda q=q: other.set_queue(q.queue, rv=q.rv) for q in snapshot.queues.rows.values()],
        *[
            lambda g=g: other.set_group(g.group, rv=g.rv, state=g.state)
            for g in snapshot.groups.rows.values()
        ],
        *[lambda p=p: other.set_pod(p.pod, rv=p.rv, task=p.state) for p in snapshot.pods.values()],
        *[
            lambda c=c: other.set_priority_class(c.priority_class, rv=c.rv)
            for c in snapshot.classes.rows.values()
        ],
        *[
            lambda o=o: other.set_object(o.obj, rv=o.rv)
            for table in snapshot.plain.values()
            for o in table.rows.values()
        ],
    ]
    random.Random(seed).shuffle(rows)
    for store in rows:
        store()
    return other


def check(profile, seed):
    snapshot = RandomCluster(profile, seed).world.snapshot
    session, decision, inputs = decided(snapshot)
    assert violations(session, decision) == []
    digest = decision_digest(CONFIG.shard("s"), inputs, decision)
    again = decided(shuffled(snapshot, seed))[1]
    assert decision_digest(CONFIG.shard("s"), inputs, again) == digest
    session, decision, _ = decided(snapshot, flags.ALL)
    assert violations(session, decision) == []


@pytest.mark.parametrize("profile", PROFILES)
def test_invariants_hold_in_any_order_of_rows(profile):
    for seed in range(QUICK):
        check(profile, seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("profile", PROFILES)
def test_invariants_hold_on_many_clusters(profile):
    for seed in range(QUICK, LONG):
        check(profile, seed)


@pytest.mark.parametrize("profile", ["reclaim", "preempt", "everything"])
def test_skipped_simulations_change_nothing(profile, monkeypatch):
    for seed in range(8):
        snapshot = RandomCluster(profile, seed).world.snapshot
        quick = decided(snapshot)[1]
        with monkeypatch.context() as patch:
            patch.setattr(enough.Enough, "holds", lambda _self, _potential: True)
            patch.setattr(enough.Enough, "ever", lambda _self, _bound: True)
            patch.setattr(enough.Enough, "ever_on_one_node", lambda _self, _bound: True)
            assert decided(snapshot)[1] == quick


def digests():
    """Of a few clusters, for a process of its own."""
    for profile in PROFILES:
        for seed in range(2):
            for rules in (flags.NONE, flags.ALL):
                _, decision, inputs = decided(RandomCluster(profile, seed).world.snapshot, rules)
                yield decision_digest(CONFIG.shard("s"), inputs, decision)


def test_hash_seed_does_not_matter():
    code = "from tests.property.test_decisions import digests; print(*digests())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(found) == 1
    assert found.pop().split() == [digest.encode() for digest in digests()]
