"""Cases of the plugin nodeavailability."""

from tests.conformance.node_info_ops.node_scores import scorer

OPS = {"nodeScore": scorer("nodeavailability")}
