"""Cases of the plugin resourcetype."""

from tests.conformance.node_info_ops.node_scores import scorer

OPS = {"nodeScore": scorer("resourcetype")}
