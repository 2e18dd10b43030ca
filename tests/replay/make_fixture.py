"""`python -m tests.replay.make_fixture FOLDER`: a history in today's formats, to be kept for ever.

Run once when a format gets a new version; never again for an old one.
"""

import json
import sys
from pathlib import Path

from kai_es.audit.capture import capture
from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.export import export_log
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.reader.restore import stored
from tests.histories.logs import folded
from tests.histories.story import tell_story
from tests.histories.virtual import LoopClock, run_virtual


async def make(folder):
    store = MemoryStore()
    log = await tell_story(
        lambda: MemoryLog(store=store), MemoryLeadership(), LoopClock(), seed=11, n_steps=30
    )
    world, _, _ = await folded(log)
    checkpoint = stored(world)
    cycles = await recorded_cycles(log)
    busiest = max(cycles, key=lambda entry: len(entry.cycle.decision.ops))
    folder.mkdir(parents=True, exist_ok=True)
    await export_log(log, folder / "log.kai", checkpoints=[checkpoint])
    (folder / "cycle.kai").write_bytes(await capture(log, busiest))
    (folder / "digests.json").write_text(
        json.dumps(
            {
                "world": checkpoint.head.digest,
                "cycles": [entry.cycle.digest for entry in cycles],
                "captured": busiest.cycle.digest,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    run_virtual(make(Path(sys.argv[1])))
