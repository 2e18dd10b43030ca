"""A real kube-apiserver and etcd for tests: built once from Go modules, run on loopback.

`python -m tools.kubernetes` builds what is missing and says how far it is. In: a folder for the
state. Out: a kubeconfig. There is no controller manager and no kubelet: namespaces stay
Terminating, owned objects are not collected, pods run where a test says so.
"""

from tools.kubernetes.binaries import VERSION, binaries
from tools.kubernetes.server import Kubernetes, compact, write_kubeconfig

__all__ = ["VERSION", "Kubernetes", "binaries", "compact", "write_kubeconfig"]
