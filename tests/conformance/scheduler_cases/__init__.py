"""Scheduler cases: a small cluster, actions, and the state that they must leave behind."""
