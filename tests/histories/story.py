"""One made-up story of a cluster on any log: seeded work around real stream and scheduler."""

import asyncio
import random

from streams.snapshot import SnapshotStream
from tests.histories.circle import (
    Binder,
    Informer,
    a_cluster,
    a_scheduler,
    first_fit,
    raw_group,
    raw_node,
    some_pods,
)
from tests.histories.logs import running, until_covered


async def tell_story(open_log, leadership, clock, *, seed, n_steps=40, decide=first_fit):
    """Run a story; returns the log it is on. Everything is still when it returns.

    open_log: makes another client of the same log.
    """
    rng = random.Random(seed)
    log = open_log()
    informer = Informer(log, clock)
    binder = Binder(open_log(), informer, clock, seed=seed, trouble=0.15, run_s=1.0)
    stream = SnapshotStream(log=open_log(), leadership=leadership, clock=clock, holder="stream")
    await a_cluster(informer, n_nodes=3, cpu=8)
    async with running(stream.run(), informer.run(), binder.run()):
        for reign in range(2):
            scheduler = a_scheduler(
                open_log(), leadership, clock, holder=f"sched-{reign}", decide=decide
            )
            ending = asyncio.ensure_future(scheduler.run())
            for step in range(n_steps // 2):
                await _something(informer, rng, f"{reign}-{step}")
                await clock.sleep(rng.choice((0.0, 0.03, 0.1)))
            await clock.sleep(0.5)
            if rng.random() < 0.5:
                scheduler.stop()
            else:
                ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
        await clock.sleep(1)
    async with running(
        SnapshotStream(log=open_log(), leadership=leadership, clock=clock, holder="last").run()
    ):
        await until_covered(log)
    return log


async def _something(informer, rng, name):
    match rng.randrange(8):
        case 0 | 1 | 2 | 3:
            n = rng.randint(1, 4)
            await informer.put("PodGroup", raw_group(f"g{name}", min_member=n))
            cpu = rng.choice(("1", "2", "7"))
            pods = some_pods(f"g{name}", n, cpu=cpu, victim=rng.random() < 0.5)
            await informer.put("Pod", *pods)
        case 4:
            await informer.put("Node", raw_node(f"n{rng.randrange(4)}", cpu=rng.choice((8, 12))))
        case 5:
            (pod,) = some_pods(f"bad{name}", 1, cpu="-3")
            await informer.put("Pod", pod)
        case 6:
            uids = sorted(uid for kind, uid in informer.objects if kind == "Pod")
            if uids:
                await informer.delete("Pod", rng.choice(uids))
        case 7:
            (pod,) = some_pods(f"early{name}", 1)  # its group comes later
            await informer.put("Pod", pod)
            await informer.put("PodGroup", raw_group(f"early{name}"))
