"""Cases of the plugin nodeplacement."""

from tests.conformance.node_info_ops.node_scores import scorer

OPS = {"nodeScore": scorer("nodeplacement")}
