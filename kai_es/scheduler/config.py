"""Configuration of one shard, every default resolved.

`ShardConfig.settings` is the canonical JSON object of `Config`; `config_file` makes one from the
reference's files. Checks are here, so a stored configuration is checked like a new one.

Reference: pkg/scheduler/conf/scheduler_conf.go, cmd/scheduler/app/options (scheduler-core §2).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from kai_es.events.requests import BUDGET, DELETE
from kai_es.kube.labels import (
    CPU_WORKER_LABEL,
    GPU_WORKER_LABEL,
    MIG_WORKER_LABEL,
    NODE_POOL_LABEL,
    QUEUE_LABEL,
    RESERVATION_APP,
    SCHEDULER_NAME,
)
from kai_es.kube.objects import ShardConfig
from kai_es.scheduler.columns.lens import Lens
from kai_es.scheduler.solve.budget import SearchBudgets

ACTIONS: Final = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
PLUGINS: Final = (
    "predicates",
    "proportion",
    "priority",
    "elastic",
    "kubeflow",
    "ray",
    "nodeavailability",
    "gpusharingorder",
    "gpupack",
    "resourcetype",
    "subgrouporder",
    "taskorder",
    "nominatednode",
    "dynamicresources",
    "nodeplacement",
    "minruntime",
    "topology",
    "snapshot",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
)
"""The reference's built-in list, in its order."""
OTHER_PLUGINS: Final = ("gpuspread", "podaffinity", "reflectjoborder", "numa")
KNOWN_PLUGINS: Final = frozenset(PLUGINS + OTHER_PLUGINS)

UNITS_PER_SECOND: Final = 50
"""Work units that stand for one second of the reference's search budgets: about what it does in a
second on the benchmark machines (`docs/adr/0004-search-budgets-are-counted.md`)."""


class ConfigError(ValueError):
    """A configuration that cannot be used; the text names the field and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOption:
    """One enabled plugin."""

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)


def _default_plugins() -> tuple[PluginOption, ...]:
    packed = {"cpu": "binpack", "gpu": "binpack"}
    return tuple(
        PluginOption(name=name, arguments=packed if name == "nodeplacement" else {})
        for name in PLUGINS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All knobs of a shard; names and meaning as in scheduler-core §2, times in ms.

    queue_depth: most jobs per leaf queue and action; a missing action or −1 = all.
    max_consolidation_preemptees: victim jobs per consolidation attempt, −1 = no bound, 0 = off.
    staleness_grace_ms: negative = stale gangs are never evicted.
    usage_params: which history counts for fair share, as in the reference's
        `usageDBConfig.usageParams`; None = none does. Read by the shell (`usage.window`): the core
        gets the figures as an input.
    eviction: how pods are evicted: `delete`, as by Kubernetes' own preemption, or `budget`, within
        their disruption budgets. Read by the shell: it travels with the request to the binder.
    withheld: features (`solve.support`) whose pods wait: the rest of the system cannot serve them.
    """

    actions: tuple[str, ...] = ACTIONS
    plugins: tuple[PluginOption, ...] = field(default_factory=_default_plugins)
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    budgets: SearchBudgets = field(default_factory=SearchBudgets)
    scheduler_name: str = SCHEDULER_NAME
    node_pool_key: str = NODE_POOL_LABEL
    node_pool_value: str = ""
    queue_label_key: str = QUEUE_LABEL
    reservation_app: str = RESERVATION_APP
    cpu_worker_key: str = CPU_WORKER_LABEL
    gpu_worker_key: str = GPU_WORKER_LABEL
    mig_worker_key: str = MIG_WORKER_LABEL
    restrict_nodes: bool = False
    max_consolidation_preemptees: int = 16
    detailed_fit_errors: bool = False
    update_pod_eviction_condition: bool = False
    schedule_csi_storage: bool = False
    use_scheduling_signatures: bool = True
    full_hierarchy_fairness: bool = True
    allow_consolidating_reclaim: bool = True
    staleness_grace_ms: int = 60_000
    stuck_in_releasing_ms: int = 120_000
    schedule_period_ms: int = 1_000
    usage_params: Mapping[str, Any] | None = None
    eviction: str = DELETE
    withheld: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check what the types cannot."""
        for action in self.actions:
            if action not in ACTIONS:
                raise ConfigError(
                    f"actions: unknown action {action!r}, known: {', '.join(ACTIONS)}"
                )
        for plugin in self.plugins:
            if plugin.name not in KNOWN_PLUGINS:
                raise ConfigError(
                    f"plugins: unknown plugin {plugin.name!r}, "
                    f"known: {', '.join(sorted(KNOWN_PLUGINS))}"
                )
        for action, depth in self.queue_depth.items():
            if depth < -1:
                raise ConfigError(
                    f"queueDepthPerAction.{action} is {depth}, want −1 (all) or 0 and more"
                )
        if self.eviction not in (DELETE, BUDGET):
            raise ConfigError(f"eviction is {self.eviction!r}, want {DELETE} or {BUDGET}")
        if self.max_consolidation_preemptees < -1:
            raise ConfigError(
                f"maxNumberConsolidationPreemptees is {self.max_consolidation_preemptees}, "
                "want −1 (no bound), 0 (off) or more"
            )
        if self.stuck_in_releasing_ms <= 0:
            object.__setattr__(self, "stuck_in_releasing_ms", 120_000)

    def lens(self, *, groups_by_name: bool = False, foreign_pods: bool = False) -> Lens:
        """What of it decides which rows the shard sees."""
        return Lens(
            pool_key=self.node_pool_key,
            pool_value=self.node_pool_value,
            restrict_nodes=self.restrict_nodes,
            cpu_worker_key=self.cpu_worker_key,
            gpu_worker_key=self.gpu_worker_key,
            mig_worker_key=self.mig_worker_key,
            reservation_app=self.reservation_app,
            scheduler_name=self.scheduler_name,
            stuck_after_ms=self.stuck_in_releasing_ms,
            full_hierarchy=self.full_hierarchy_fairness,
            groups_by_name=groups_by_name,
            foreign_pods=foreign_pods,
        )

    def settings(self) -> dict[str, Any]:
        """The canonical JSON object: every field, plain types."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        found["actions"] = list(self.actions)
        found["withheld"] = list(self.withheld)
        if self.usage_params is not None:
            found["usage_params"] = dict(sorted(self.usage_params.items()))
        found["plugins"] = [
            {"name": plugin.name, "arguments": dict(sorted(plugin.arguments.items()))}
            for plugin in self.plugins
        ]
        found["queue_depth"] = dict(sorted(self.queue_depth.items()))
        found["budgets"] = {
            "max_action": dict(sorted(self.budgets.max_action.items())),
            "max_job": self.budgets.max_job,
            "min_job": self.budgets.min_job,
            "max_generator": dict(sorted(self.budgets.max_generator.items())),
        }
        return found

    def shard(self, name: str, uid: str = "") -> ShardConfig:
        """As a row."""
        return ShardConfig(uid=uid or name, name=name, settings=self.settings())


def parse_settings(settings: Mapping[str, Any]) -> Config:
    """The configuration that canonical settings stand for; absent fields have their default.

    Raises:
        ConfigError: an unknown field, or a value of the wrong type; names it.
    """
    known = {f.name: f for f in fields(Config)}
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}, known: {', '.join(sorted(known))}")
        values[name] = _SPECIAL[name](value) if name in _SPECIAL else _plain(name, value)
    return Config(**values)


def _plain(name: str, value: Any) -> Any:
    default = getattr(_DEFAULT, name)
    if type(value) is not type(default):
        want = type(default).__name__
        raise ConfigError(f"setting {name} is {value!r}, want a value of type {want}")
    return value


def _plugins(value: Any) -> tuple[PluginOption, ...]:
    try:
        return tuple(
            PluginOption(name=one["name"], arguments=dict(one.get("arguments") or {}))
            for one in value
        )
    except (TypeError, KeyError, AttributeError, ValueError) as exc:
        raise ConfigError(
            f"setting plugins is {value!r}, want a list of objects with name and arguments"
        ) from exc


def _budgets(value: Any) -> SearchBudgets:
    try:
        return SearchBudgets(**value)
    except TypeError as exc:
        raise ConfigError(f"setting budgets: {exc}") from exc


def _depths(value: Any) -> Mapping[str, int]:
    if not isinstance(value, dict) or not all(type(depth) is int for depth in value.values()):
        raise ConfigError(f"setting queue_depth is {value!r}, want action -> number of jobs")
    return dict(value)


def _usage_params(value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"setting usage_params is {value!r}, want an object or null")
    return None if value is None else dict(value)


_DEFAULT: Final = Config()
_SPECIAL: Final[Mapping[str, Callable[[Any], Any]]] = {
    "actions": tuple,
    "withheld": tuple,
    "plugins": _plugins,
    "queue_depth": _depths,
    "budgets": _budgets,
    "usage_params": _usage_params,
}
