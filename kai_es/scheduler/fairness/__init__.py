"""Who gets what, and who gives way: queues, shares, limits, reclaim, minimum run time.

In: plain values and columns of queues. Out: shares, order keys, verdicts with their reason. Pure
functions; never a session, a task object, a clock or a log line.
"""
