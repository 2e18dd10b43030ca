"""The forms of `spec.affinity` and `spec.topologySpreadConstraints`.

A parsed pod keeps them as builtins in the API's form, checked against these types and without
unknown fields, so that whoever reads them later may rely on their form.
"""

import msgspec

from kai_es.kube.shape import Int32, Labels, NonEmpty


class _Camel(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Field names as in the API."""


class Requirement(_Camel):
    """One `matchExpressions` entry of a node selector."""

    key: str
    operator: str
    values: list[str] | None = None


class NodeTerm(_Camel):
    """One node selector term."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeTerms(_Camel):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeTerm]


class PreferredNodeTerm(_Camel):
    """A weighted node selector term."""

    weight: Int32
    preference: NodeTerm


class NodeAffinity(_Camel):
    """`spec.affinity.nodeAffinity`."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodeTerm] | None = None


class LabelRequirement(_Camel):
    """One `matchExpressions` entry of a label selector."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(_Camel):
    """A label selector."""

    match_labels: Labels | None = None
    match_expressions: list[LabelRequirement] | None = None


class PodTerm(_Camel):
    """One pod (anti-)affinity term."""

    topology_key: NonEmpty
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredPodTerm(_Camel):
    """A weighted pod (anti-)affinity term."""

    weight: Int32
    pod_affinity_term: PodTerm


class PodAffinity(_Camel):
    """`spec.affinity.podAffinity` and `podAntiAffinity`."""

    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredPodTerm] | None = None


class Affinity(_Camel):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpread(_Camel):
    """One entry of `spec.topologySpreadConstraints`."""

    max_skew: Int32
    topology_key: NonEmpty
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None
