"""Vocabulary of the log: envelope, record types, codec, upcasters.

In and out: bytes and frozen structs. Never: I/O, clocks.
"""
