"""The Kubernetes API behind `ports.cluster`.

In: a kubeconfig, or what a pod finds in itself. Out: lists, watches, single writes. Never: a retry
of a write, a decision, an exception of a library.
"""
