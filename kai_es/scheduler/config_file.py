"""The reference's configuration files as `Config`.

`SchedulerConfiguration` is YAML; `schedulerParams` is the object of a snapshot dump. Errors name
the line and what would be right.

Reference: pkg/scheduler/conf_util/scheduler_conf_util.go (scheduler-core §2.2, §2.3).
"""

import datetime
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import yaml

from kai_es.events.requests import BUDGET, DELETE
from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.times import duration_ms
from kai_es.scheduler.config import (
    ACTIONS,
    KNOWN_PLUGINS,
    Config,
    ConfigError,
    PluginOption,
)
from kai_es.scheduler.solve.budget import (
    DEFAULT,
    GENERATOR_MS,
    BudgetError,
    SearchBudgets,
    search_limits,
)

_NS_PER_MS: Final = 1_000_000
_IGNORED_SWITCHES: Final = frozenset(
    {
        "disableJobOrder",
        "disableTaskOrder",
        "disablePreemptable",
        "disableReclaimable",
        "disableQueueOrder",
        "disablePredicate",
        "disableNodeOrder",
    }
)
"""Read by nobody in the reference either."""


_USAGE_FIELDS: Final = frozenset(
    {"clientType", "connectionString", "connectionStringEnvVar", "usageParams"}
)


class Place:
    """A value of a YAML file with the line it stands on; 0 = not from a file."""

    __slots__ = ("line", "path", "value")

    def __init__(self, value: Any, line: int, path: str) -> None:
        self.value = value
        self.line = line
        self.path = path

    def error(self, want: str) -> ConfigError:
        """What is wrong here."""
        return self.fault(f"is {self.plain()!r}, want {want}")

    def fault(self, text: str) -> ConfigError:
        """The same in other words."""
        where = f"line {self.line}: " if self.line else ""
        return ConfigError(f"{where}{self.path} {text}")

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: one.plain() for key, one in self.value.items()}
        if isinstance(self.value, list):
            return [one.plain() for one in self.value]
        return self.value


def parse_yaml(text: str) -> dict[str, Any]:
    """Fields of `Config` that a `SchedulerConfiguration` sets.

    Raises:
        ConfigError: not YAML, or a field that makes no sense; names the line.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        place = _place(node, "configuration") if node is not None else None
    except yaml.YAMLError as exc:
        raise ConfigError(f"not YAML: {' '.join(str(exc).split())}") from exc
    if place is None or place.value is None:
        return {}
    return _configuration(place)


def parse_object(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The same from an object (`config` of a snapshot dump).

    Raises:
        ConfigError: a field that makes no sense.
    """
    return _configuration(_unplaced(raw, "config"))


def _place(node: yaml.Node, path: str) -> Place:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Place] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in found:
                raise ConfigError(f"line {key.start_mark.line + 1}: {path}.{name} is given twice")
            found[name] = _place(value, f"{path}.{name}")
        return Place(found, line, path)
    if isinstance(node, yaml.SequenceNode):
        return Place([_place(n, f"{path}[{i}]") for i, n in enumerate(node.value)], line, path)
    return Place(yaml.safe_load(yaml.serialize(node)), line, path)


def _unplaced(raw: Any, path: str) -> Place:
    if isinstance(raw, Mapping):
        found = {str(k): _unplaced(v, f"{path}.{k}") for k, v in raw.items()}
        return Place(found, 0, path)
    if isinstance(raw, list):
        return Place([_unplaced(v, f"{path}[{i}]") for i, v in enumerate(raw)], 0, path)
    return Place(raw, 0, path)


def _configuration(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = {}
    readers: dict[str, Callable[[Place], Any]] = {
        "actions": _actions,
        "tiers": _tiers,
        "queueDepthPerAction": _depths,
        "scenarioSearchBudgets": _budgets,
        "usageDBConfig": _usage_params,
        "eviction": _eviction,
        "updatePodEvictionCondition": _boolean,
    }
    names = {
        "actions": "actions",
        "tiers": "plugins",
        "queueDepthPerAction": "queue_depth",
        "scenarioSearchBudgets": "budgets",
        "usageDBConfig": "usage_params",
        "eviction": "eviction",
        "updatePodEvictionCondition": "update_pod_eviction_condition",
    }
    for key, value in _mapping(place).items():
        if key not in readers:
            raise value.error(f"no such field; known: {', '.join(sorted(readers))}")
        if value.value is not None:
            found[names[key]] = readers[key](value)
    if "actions" not in found:
        raise place.error(f"a field actions, such as {', '.join(ACTIONS)}")
    return found


def _mapping(place: Place) -> Mapping[str, Place]:
    if not isinstance(place.value, dict):
        raise place.error("a mapping")
    return place.value


def _actions(place: Place) -> tuple[str, ...]:
    if not isinstance(place.value, str):
        raise place.error("action names separated by commas")
    names = tuple(name.strip() for name in place.value.split(","))
    for name in names:
        if name not in ACTIONS:
            raise place.error(f"known actions only ({', '.join(ACTIONS)}); {name!r} is none")
    return names


def _eviction(place: Place) -> str:
    if place.value not in (DELETE, BUDGET):
        raise place.error(f"{DELETE} or {BUDGET}")
    return str(place.value)


def _boolean(place: Place) -> bool:
    if not isinstance(place.value, bool):
        raise place.error("true or false")
    return place.value


def _tiers(place: Place) -> tuple[PluginOption, ...]:
    if not isinstance(place.value, list):
        raise place.error("a list of tiers")
    found: list[PluginOption] = []
    for tier in place.value:
        for key, value in _mapping(tier).items():
            if key != "plugins" or not isinstance(value.value, list):
                raise value.error("a tier with a list of plugins")
            found.extend(_plugin(one) for one in value.value)
    return tuple(found)


def _plugin(place: Place) -> PluginOption:
    values = _mapping(place)
    name = values.get("name")
    if name is None or not isinstance(name.value, str):
        raise place.error("a plugin with a name")
    if name.value not in KNOWN_PLUGINS:
        raise name.error(f"one of {', '.join(sorted(KNOWN_PLUGINS))}")
    for key, value in values.items():
        if key not in ("name", "arguments") and key not in _IGNORED_SWITCHES:
            raise value.error("no such field of a plugin; known: name, arguments")
    arguments = values.get("arguments")
    if arguments is None or arguments.value is None:
        return PluginOption(name=name.value)
    return PluginOption(
        name=name.value, arguments={k: _text(v) for k, v in _mapping(arguments).items()}
    )


def _text(place: Place) -> str:
    if isinstance(place.value, bool):
        return "true" if place.value else "false"
    if not isinstance(place.value, str | int | float):
        raise place.error("a text")
    return str(place.value)


def _depths(place: Place) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for action, depth in _mapping(place).items():
        if type(depth.value) is not int or depth.value < -1:
            raise depth.error("a number of jobs per leaf queue, −1 = all")
        found[action] = depth.value
    return found


def _budgets(place: Place) -> SearchBudgets:
    values = dict(_mapping(place))
    per_action = values.pop("maxActionSearchDuration", None)
    per_generator = values.pop("maxGeneratorSearchDuration", None)
    max_job = values.pop("maxJobSearchDuration", None)
    min_job = values.pop("minJobSearchDuration", None)
    for value in values.values():
        raise value.error("no such field of scenarioSearchBudgets")
    budgets = SearchBudgets(
        max_action=_durations(per_action, (DEFAULT, *ACTIONS)),
        max_job=_ms(max_job) if max_job else None,
        min_job=_ms(min_job) if min_job else None,
        max_generator=_durations(per_generator, GENERATOR_MS),
    )
    try:
        search_limits(DEFAULT, budgets)
    except BudgetError as exc:
        raise place.fault(f"cannot be used: {exc}") from exc
    return budgets


def _durations(place: Place | None, names: Collection[str]) -> Mapping[str, int]:
    """Milliseconds by name."""
    if place is None:
        return {}
    found = _mapping(place)
    for name, value in found.items():
        if name not in names:
            raise value.fault(f"names nothing; known: {', '.join(names)}")
    return {name: _ms(value) for name, value in found.items()}


def _usage_params(place: Place) -> Mapping[str, Any]:
    """The parameters alone: the books are the source, and an address may hold a password."""
    values = _mapping(place)
    for key, value in values.items():
        if key not in _USAGE_FIELDS:
            raise value.error(f"no such field; known: {', '.join(sorted(_USAGE_FIELDS))}")
    params = values.get("usageParams")
    if params is None or params.value is None:
        return {}
    return {key: _plain_param(value.plain()) for key, value in _mapping(params).items()}


def _plain_param(value: Any) -> Any:
    """YAML reads a time without quotes as one; settings are JSON."""
    return value.isoformat() if isinstance(value, datetime.date) else value


def _ms(place: Place) -> int:
    if type(place.value) is int and place.value == 0:
        return 0
    if not isinstance(place.value, str):
        raise place.error("a duration such as 30s")
    try:
        return duration_ms(place.value, what="", field=place.path)
    except InvalidObjectError as exc:
        raise place.error("a duration such as 30s or 5m") from exc


PARAMS: Final[Mapping[str, tuple[str, type[str] | type[int], int]]] = {
    "schedulerName": ("scheduler_name", str, 0),
    "restrictSchedulingNodes": ("restrict_nodes", bool, 0),
    "maxNumberConsolidationPreemptees": ("max_consolidation_preemptees", int, 1),
    "scheduleCSIStorage": ("schedule_csi_storage", bool, 0),
    "useSchedulingSignatures": ("use_scheduling_signatures", bool, 0),
    "fullHierarchyFairness": ("full_hierarchy_fairness", bool, 0),
    "allowConsolidatingReclaim": ("allow_consolidating_reclaim", bool, 0),
    "globalDefaultStalenessGracePeriod": ("staleness_grace_ms", int, _NS_PER_MS),
    "schedulePeriod": ("schedule_period_ms", int, _NS_PER_MS),
    "stuckInReleasingThreshold": ("stuck_in_releasing_ms", int, _NS_PER_MS),
    "detailedFitErrors": ("detailed_fit_errors", bool, 0),
    "updatePodEvictionCondition": ("update_pod_eviction_condition", bool, 0),
    "queueLabelKey": ("queue_label_key", str, 0),
}
"""`SchedulerParams` in a dump: zero values are omitted, so an absent one is the type's zero."""


def parse_params(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `Config` that `schedulerParams` of a snapshot dump sets.

    Raises:
        ConfigError: a value of the wrong type.
    """
    found: dict[str, Any] = {}
    for key, (name, kind, unit) in PARAMS.items():
        value = raw.get(key, kind())
        if type(value) is not kind:
            raise ConfigError(f"schedulerParams.{key} is {value!r}, want {kind.__name__}")
        found[name] = -(-int(value) // unit) if unit else value
    pool = raw.get("partitionParams") or {}
    found["node_pool_key"] = pool.get("NodePoolLabelKey", "")
    found["node_pool_value"] = pool.get("NodePoolLabelValue", "")
    if not found["queue_label_key"]:
        del found["queue_label_key"]
    return found


def config_of(configuration: Mapping[str, Any] | str, params: Mapping[str, Any]) -> Config:
    """A shard's configuration from the reference's two sources.

    Args:
        configuration: `SchedulerConfiguration` as YAML text or object.
        params: `SchedulerParams` as in a snapshot dump.

    Raises:
        ConfigError: as above.
    """
    parse = parse_yaml if isinstance(configuration, str) else parse_object
    return Config(**parse(configuration), **parse_params(params))  # type: ignore[arg-type]
