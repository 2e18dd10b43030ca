import pytest

from kai_es.scheduler.config import Config, ConfigError, PluginOption, parse_settings
from kai_es.scheduler.config_file import config_of, parse_params, parse_yaml

YAML = """actions: "allocate, reclaim"
tiers:
- plugins:
  - name: predicates
  - name: nodeplacement
    arguments:
      cpu: spread
queueDepthPerAction:
  reclaim: 5
scenarioSearchBudgets:
  maxJobSearchDuration: 30s
usageDBConfig:
  clientType: prometheus
  connectionString: http://user:secret@prometheus
  usageParams:
    windowType: tumbling
    tumblingWindowStartTime: 2026-01-01T00:00:00Z
    windowSize: 2d
"""


def test_settings_come_back_as_they_were():
    config = Config(actions=("allocate",), queue_depth={"allocate": 3}, node_pool_value="a")
    assert parse_settings(config.settings()) == config
    assert parse_settings({}) == Config()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"acctions": []}, "unknown setting 'acctions'"),
        ({"restrict_nodes": "yes"}, "restrict_nodes is 'yes', want a value of type bool"),
        ({"actions": ["fly"]}, "unknown action 'fly'"),
        ({"plugins": [{"name": "magic"}]}, "unknown plugin 'magic'"),
        ({"queue_depth": {"allocate": -2}}, "queueDepthPerAction.allocate is -2"),
    ],
)
def test_wrong_settings_name_the_field(settings, words):
    with pytest.raises(ConfigError, match=words):
        parse_settings(settings)


def test_reference_yaml():
    config = Config(**parse_yaml(YAML))
    assert config.actions == ("allocate", "reclaim")
    assert config.plugins[1] == PluginOption(name="nodeplacement", arguments={"cpu": "spread"})
    assert config.queue_depth == {"reclaim": 5}
    assert config.budgets.max_job == 30_000
    assert config.usage_params == {
        "windowType": "tumbling",
        "tumblingWindowStartTime": "2026-01-01T00:00:00+00:00",
        "windowSize": "2d",
    }
    assert "secret" not in str(config.settings())


def test_history_counts_only_when_asked_for():
    assert Config(**parse_yaml(YAML.partition("usageDBConfig")[0])).usage_params is None
    assert config_of({"actions": "allocate", "usageDBConfig": {}}, {}).usage_params == {}
    with pytest.raises(ConfigError, match="usage_params is 'week', want an object"):
        parse_settings({"usage_params": "week"})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name: predicates", "name: predictes", r"line 4: .*plugins\[0\].name is 'predictes'"),
        ("reclaim: 5", "reclaim: many", "line 9: .*reclaim is 'many', want a number of jobs"),
        ("30s", "soon", "line 11: .*maxJobSearchDuration is 'soon', want a duration"),
        ('"allocate, reclaim"', '"allocate,"', "line 1: .*actions is 'allocate,'"),
        ("30s", "-5s", "line 11: .*Budgets cannot be used: maxJobSearchDuration must be non-neg"),
        (
            "maxJobSearchDuration: 30s",
            "{maxJobSearchDuration: 5s, minJobSearchDuration: 9s}",
            "line 11: .*minJobSearchDuration must be less than maxJobSearchDuration",
        ),
        (
            "maxJobSearchDuration: 30s",
            "{maxActionSearchDuration: {reclaimm: 1s}}",
            "line 11: .*reclaimm names nothing; known: default, allocate, .*reclaim",
        ),
        (
            "maxJobSearchDuration: 30s",
            "{maxGeneratorSearchDuration: {Greedy: 1s}}",
            "Greedy names nothing; known: default, NodeLocalGreedy, MultiNodeGang",
        ),
        ("tiers:", "teirs:", "line 3: .*no such field"),
        ("actions:", "action:", "no such field"),
    ],
)
def test_wrong_yaml_names_the_line(old, new, words):
    with pytest.raises(ConfigError, match=words):
        parse_yaml(YAML.replace(old, new))


def test_params_of_a_dump_omit_zero_values():
    assert parse_params({})["full_hierarchy_fairness"] is False
    params = {"globalDefaultStalenessGracePeriod": 60_000_000_000, "useSchedulingSignatures": True}
    config = config_of({"actions": "allocate"}, params)
    assert config.staleness_grace_ms == 60_000
    assert config.use_scheduling_signatures
    assert not config.allow_consolidating_reclaim
    with pytest.raises(ConfigError, match="detailedFitErrors is 'no'"):
        parse_params({"detailedFitErrors": "no"})


def test_pods_may_be_marked_before_they_are_evicted():
    text = "actions: allocate\nupdatePodEvictionCondition: {}\n"
    assert parse_yaml(text.format("true"))["update_pod_eviction_condition"] is True
    with pytest.raises(ConfigError, match=r"line 2.*true or false"):
        parse_yaml(text.format("often"))
