"""The usage tables as dicts, under the name that the tests of the books use."""

from kai_es.simulate.tables import OPEN, Interval, UsageTables

__all__ = ["OPEN", "Interval", "Tables"]

Tables = UsageTables
