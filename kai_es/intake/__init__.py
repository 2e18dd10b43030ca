"""Informers: the only watches on the API server.

In: lists and watches of a few kinds, or configuration from a file. Out: records of `objects` and
`objects.index`, each version once. Never: an interpretation of an object, a write to the cluster.
"""
