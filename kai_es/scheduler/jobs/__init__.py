"""Rules of jobs: the sub-group tree, gangs, which tasks next, orders, signatures, the queue walk.

In: pod groups and counts by pod set. Out: verdicts, keys, lists of the caller's own tasks. Never
a session, a node or a clock.
"""
