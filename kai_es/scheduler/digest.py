"""Digests by which a decision is recognised: equal digests = the same decision, byte for byte.

Not in it: offsets, epochs, timings, producers, record ids (architecture §4).
"""

import hashlib
from typing import Any, Final

import msgspec

from kai_es.events.decisions import CycleDecision, CycleInputs
from kai_es.kube.objects import ShardConfig

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


def config_digest(config: ShardConfig) -> str:
    """Hex SHA-256 of a configuration's settings."""
    return _digest(config.settings)


def decision_digest(config: ShardConfig, inputs: CycleInputs, decision: CycleDecision) -> str:
    """Hex SHA-256 over deterministic MessagePack of configuration digest, inputs and decision.

    Floats are in it as IEEE-754 bytes, so the last bit counts.
    """
    return _digest((config_digest(config), inputs, decision))


def _digest(value: Any) -> str:
    return hashlib.sha256(_encoder.encode(value)).hexdigest()
