"""Digests by which a replay is compared with what was recorded (architecture §4)."""

import hashlib
from typing import Final

import msgspec

from kai_es.events.decisions import CycleDecision, CycleInputs
from kai_es.kube.objects import ShardConfig

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
"""Equal values give equal bytes; floats are their IEEE-754 form."""


def config_digest(config: ShardConfig) -> str:
    """Hex SHA-256 over what of a configuration can change a decision: all settings."""
    return hashlib.sha256(_encoder.encode((config.name, config.settings))).hexdigest()


def cycle_digest(config: str, inputs: CycleInputs, decision: CycleDecision) -> str:
    """Hex SHA-256 over (config digest, inputs, whole decision).

    Offsets, epoch, timings and record ids are not in it: they may differ between two runs that
    decide the same.
    """
    return hashlib.sha256(_encoder.encode((config, inputs, decision))).hexdigest()
