"""Cases of the plugin gpuspread."""

from kai_es.scheduler.plugins.sharing import spread_score
from tests.conformance.node_info_ops.device_scores import scorer

OPS = {"gpuScore": scorer(spread_score)}
