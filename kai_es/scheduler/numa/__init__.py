"""Alignment of pods to the NUMA zones of a node, as the kubelet's Topology Manager will judge it.

In: what a pod's containers ask for, zones with what they have left. Out: which zones give what.
Nothing here knows a session; the plugin `numa` keeps the books.
"""
