"""A simulated cluster: API server, kubelets, workloads.

In: calls of the Kubernetes API, over HTTP (`server`) or in this process (`api`, `cluster_local`);
seeds, traces. Out: objects, watches, what became of pods, and two ledgers that the durable log
knows nothing of: every write that was asked for (`database.read_ledger`) and what ran where and
when (`runs.read_runs`). Never: a scheduling decision, or a look at the log.

Start with `cluster.ClusterProcess` (its own process) or `cluster.SimulatedCluster` (in this one).
"""

__all__: list[str] = []
