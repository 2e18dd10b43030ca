"""The search for victims: budgets, filters of scenarios, and what proposes and tries them.

In: a pending job, candidates, limits in work units. Out: a set of moves or the reason for none.
"""
