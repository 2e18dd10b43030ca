"""May a cycle run, and may it evict? From what the log says of the informers (architecture §3)."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kai_es.events.catalogue import OBJECTS, TOPICS
from kai_es.events.decisions import Gate, Verdict
from kai_es.kube.objects import ShardConfig
from kai_es.scheduler.config import ConfigError, parse_settings
from kai_es.snapshot.liveness import Liveness
from kai_es.snapshot.world import World


class Kind(NamedTuple):
    """A kind that decisions rest on.

    required: without the kind in the API server there is no cycle; else it counts as an empty list.
    watched:  comes from a watch, which can fall silent.
    """

    name: str
    required: bool = True
    watched: bool = True


KINDS: Final = (
    Kind("Node"),
    Kind("Pod"),
    Kind("PodGroup"),
    Kind("Queue"),
    Kind("PriorityClass", required=False),
    Kind("ResourceClaim", required=False),
    Kind("ResourceSlice", required=False),
    Kind("DeviceClass", required=False),
    Kind("Namespace", required=False),
    Kind("Topology", required=False),
    Kind("NodeResourceTopology", required=False),
    Kind("ConfigMap", required=False),
    Kind("PersistentVolumeClaim", required=False),
    Kind("PersistentVolume", required=False),
    Kind("StorageClass", required=False),
    Kind("CSIDriver", required=False),
    Kind("CSIStorageCapacity", required=False),
    Kind("ShardConfig", required=False, watched=False),
)

PIPELINE_NO_EVICT_MS: Final = 5_000
PIPELINE_CLOSED_MS: Final = 30_000
"""`Alive` comes every 2 s: two missed ones and the picture is too old to evict on."""

WATCH_NO_EVICT_MS: Final = 90_000
WATCH_CLOSED_MS: Final = 300_000
"""Bookmarks come once a minute."""

SKEW_MAX_MS: Final = 2_000
"""As far as clocks may differ."""

PARKED_MIN: Final = 100
PARKED_SHARE: Final = 0.01
"""So many parked versions of a kind, and such a share of its live uids, are no accident."""

PARTITIONS: Final = range(TOPICS[OBJECTS].partitions)

FAULTS_MAX: Final = 64
"""Configurations that are remembered: as many shards as one process runs, and more."""

_faults: Final[dict[int, tuple[ShardConfig, str]]] = {}
"""Identity of a row -> the row, which keeps the number its own, and what is wrong with it."""

Finding = tuple[Verdict, str]


def judge(
    world: World, *, shard: str, now_ms: int, skew_ms: int = 0, kinds: Sequence[Kind] = KINDS
) -> Gate:
    """The verdict for a cycle that starts now.

    Args:
        world: what the log says.
        shard: whose cycle it is.
        now_ms: the shell's clock.
        skew_ms: how far that clock is from the log's.
        kinds: what must be listed.
    """
    findings = [
        *_of_config(world, shard),
        *(finding for kind in kinds for finding in _of_kind(world.liveness, kind, now_ms)),
        *_of_parked(world),
        *_of_others(world),
        *_of_age("pipeline-age", now_ms - world.liveness.alive_ms(PARTITIONS), _PIPELINE),
    ]
    if abs(skew_ms) > SKEW_MAX_MS:
        findings.append((Verdict.NO_EVICT, "clock-skew"))
    verdict = max((verdict for verdict, _ in findings), default=Verdict.OPEN)
    return Gate(verdict=verdict, reasons=tuple(sorted({reason for _, reason in findings})))


_PIPELINE: Final = (PIPELINE_NO_EVICT_MS, PIPELINE_CLOSED_MS)
_WATCH: Final = (WATCH_NO_EVICT_MS, WATCH_CLOSED_MS)


def config_problem(world: World, shard: str) -> str:
    """What is wrong with the configuration of a shard, "" = nothing."""
    config = world.snapshot.config(shard)
    if config is None:
        return f"shard {shard} has no configuration in the log"
    fault = _fault(config)
    return f"configuration of shard {shard}: {fault}" if fault else ""


def _fault(config: ShardConfig) -> str:
    """Why these settings cannot be parsed, "" = they can. Rows never change: one look each."""
    known = _faults.get(id(config))
    if known is not None:
        return known[1]
    fault = ""
    try:
        parse_settings(config.settings)
    except ConfigError as exc:
        fault = str(exc)
    if len(_faults) >= FAULTS_MAX:
        del _faults[next(iter(_faults))]
    _faults[id(config)] = config, fault
    return fault


def _of_config(world: World, shard: str) -> Iterator[Finding]:
    if world.snapshot.config(shard) is None:
        yield Verdict.CLOSED, "no-config"
    elif config_problem(world, shard):
        yield Verdict.CLOSED, "bad-config"


def _of_kind(liveness: Liveness, kind: Kind, now_ms: int) -> Iterator[Finding]:
    if not liveness.is_listed(kind.name, PARTITIONS):
        yield Verdict.CLOSED, f"kind-not-listed:{kind.name}"
    elif not liveness.is_served(kind.name):
        if kind.required:
            yield Verdict.CLOSED, f"kind-not-served:{kind.name}"
    elif kind.watched:
        age_ms = now_ms - liveness.watched_ms(kind.name)
        yield from _of_age(f"watch-age:{kind.name}", age_ms, _WATCH)


def _of_others(world: World) -> Iterator[Finding]:
    if world.liveness.others():
        yield Verdict.CLOSED, "another-scheduler"


def _of_age(reason: str, age_ms: int, limits: tuple[int, int]) -> Iterator[Finding]:
    no_evict_ms, closed_ms = limits
    if age_ms > closed_ms:
        yield Verdict.CLOSED, reason
    elif age_ms > no_evict_ms:
        yield Verdict.NO_EVICT, reason


def _of_parked(world: World) -> Iterator[Finding]:
    for kind, n_parked in world.parking.counts().items():
        if n_parked >= PARKED_MIN and n_parked > PARKED_SHARE * world.n_live(kind):
            yield Verdict.CLOSED, f"parked:{kind}"
