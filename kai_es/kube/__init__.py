"""Vocabulary of the cluster: objects, quantities, label keys.

In: raw JSON of the Kubernetes API. Out: frozen structs with integer amounts. Never: I/O, clocks.
"""
