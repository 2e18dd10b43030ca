"""Reasons as texts: the reference's, word for word, and plain language for people.

In: structured reasons (`kai_es.events.decisions.Reason`) and the numbers behind them. Out: texts.
Never a decision.
"""
