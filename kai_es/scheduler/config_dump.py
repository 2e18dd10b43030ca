"""A `Config` as the reference's `SchedulerConfiguration` and `SchedulerParams`.

The counterpart of `config_file`: what it reads back is equal, save settings that the reference has
no place for (`eviction`, `withheld`, names of labels).

Reference: pkg/scheduler/conf (scheduler-core §2.2, §2.3); plugins §12.2.
"""

from typing import Any

from kai_es.kube.times import duration_text
from kai_es.scheduler.config import Config
from kai_es.scheduler.config_file import PARAMS
from kai_es.scheduler.solve.budget import SearchBudgets


def configuration_dump(config: Config) -> dict[str, Any]:
    """`config` of a dump."""
    plugins = [
        {"name": one.name, "arguments": dict(one.arguments)}
        if one.arguments
        else {"name": one.name}
        for one in config.plugins
    ]
    found: dict[str, Any] = {
        "actions": ", ".join(config.actions),
        "tiers": [{"plugins": plugins}],
    }
    if config.queue_depth:
        found["queueDepthPerAction"] = dict(config.queue_depth)
    budgets = _budgets(config.budgets)
    if budgets:
        found["scenarioSearchBudgets"] = budgets
    if config.usage_params is not None:
        found["usageDBConfig"] = {"usageParams": dict(config.usage_params)}
    return found


def _budgets(budgets: SearchBudgets) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, by_name in (
        ("maxActionSearchDuration", budgets.max_action),
        ("maxGeneratorSearchDuration", budgets.max_generator),
    ):
        if by_name:
            found[key] = {name: duration_text(ms) for name, ms in by_name.items()}
    for key, ms in (
        ("maxJobSearchDuration", budgets.max_job),
        ("minJobSearchDuration", budgets.min_job),
    ):
        if ms is not None:
            found[key] = duration_text(ms)
    return found


def params_dump(config: Config) -> dict[str, Any]:
    """`schedulerParams` of a dump; zero values are left out."""
    found: dict[str, Any] = {}
    for key, (name, _, unit) in PARAMS.items():
        value = getattr(config, name)
        if value:
            found[key] = value * unit if unit else value
    pool = {
        "NodePoolLabelKey": config.node_pool_key,
        "NodePoolLabelValue": config.node_pool_value,
    }
    found["partitionParams"] = {key: value for key, value in pool.items() if value}
    return found
