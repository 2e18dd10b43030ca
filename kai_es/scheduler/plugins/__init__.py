"""The named rules of a shard. Each registers functions at the session's extension points.

In: a session that opens, and the plugin's arguments. Out: registrations only. Plugins never import
each other or an action; what they share lives in `solve`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kai_es.events.decisions import Reason
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.plugins import (
    dynamicresources,
    generators,
    minruntime,
    numa,
    ordering,
    placement,
    predicates,
    proportion,
    sharing,
    topology,
)

Open = Callable[[Session, Mapping[str, str]], None]


def _nothing(session: Session, arguments: Mapping[str, str]) -> None:
    """A plugin that only serves HTTP in the reference."""


BUILDERS: Final[Mapping[str, Open]] = {
    "predicates": predicates.open_predicates,
    "proportion": proportion.open_proportion,
    "priority": ordering.open_priority,
    "elastic": ordering.open_elastic,
    "kubeflow": ordering.open_kubeflow,
    "ray": ordering.open_ray,
    "taskorder": ordering.open_taskorder,
    "subgrouporder": ordering.open_subgrouporder,
    "nodeavailability": placement.open_nodeavailability,
    "resourcetype": placement.open_resourcetype,
    "nominatednode": placement.open_nominatednode,
    "podaffinity": placement.open_podaffinity,
    "dynamicresources": dynamicresources.open_dynamicresources,
    "nodeplacement": placement.open_nodeplacement,
    "gpusharingorder": sharing.open_gpusharingorder,
    "gpupack": sharing.open_gpupack,
    "gpuspread": sharing.open_gpuspread,
    "numa": numa.open_numa,
    "minruntime": minruntime.open_minruntime,
    "sg-nodelocalgreedy": generators.open_nodelocalgreedy,
    "sg-multinodegang": generators.open_multinodegang,
    "topology": topology.open_topology,
    "snapshot": _nothing,
    "reflectjoborder": _nothing,
}


def open_plugins(session: Session) -> None:
    """Register the configured plugins in their order."""
    error = session.hooks.victim_invariant_error
    if error:
        refusal = Reason(code="injected", args={"text": error})
        session.ext.hopeless.append(lambda _task: refusal)
    for option in session.config.plugins:
        if option.name in session.hooks.skip_plugins:
            continue
        builder = BUILDERS.get(option.name)
        if builder is not None:
            builder(session, option.arguments)
