"""Cases of the plugin gpupack."""

from kai_es.scheduler.plugins.sharing import pack_score
from tests.conformance.node_info_ops.device_scores import scorer

OPS = {"gpuScore": scorer(pack_score)}
