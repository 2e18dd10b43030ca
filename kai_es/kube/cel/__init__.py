"""Selectors of devices: the part of CEL that `resource.k8s.io` offers, evaluated within bounds.

In: the text of an expression and a device. Out: whether it matches, or `CelError`, which says why
that cannot be told. Never: more work than `evaluate.STEPS_MAX`, a regular expression that
backtracks, anything but a value.

Users write these texts, so both their size and the work that they cause are bounded.
"""

from kai_es.kube.cel.device import SeenDevice
from kai_es.kube.cel.errors import CelError
from kai_es.kube.cel.evaluate import Program, compile_expression

__all__ = ["CelError", "Program", "SeenDevice", "compile_expression"]
