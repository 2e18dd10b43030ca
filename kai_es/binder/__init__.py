"""The only part that turns a decision into a write to Kubernetes.

In: bind and evict requests, in order per pod. Out: bindings and deletions, each with the uid and
resourceVersion it was decided on, what a pod needs before it is bound (volumes, claims, shared
GPUs), and exactly one final result per request. Never: a choice.
"""
