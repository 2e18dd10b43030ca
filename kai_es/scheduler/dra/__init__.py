"""Devices of claims: what drivers offer where, and which of it a claim gets on a node.

In: claims, classes and slices of the rows. Out: allocations, or the reason why there is none.
Never: a device that another claim holds, a choice that hangs on the order of arrival.
"""
