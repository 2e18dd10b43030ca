"""Cases of the plugin nominatednode."""

from tests.conformance.node_info_ops.node_scores import scorer

OPS = {"nodeScore": scorer("nominatednode")}
