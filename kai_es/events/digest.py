"""Digests by which a replay is compared with what was recorded (architecture §4)."""

import hashlib
from typing import Any, Final

import msgspec

from kai_es.events.decisions import CycleDecision, CycleInputs
from kai_es.kube.objects import ShardConfig

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
"""Equal values give equal bytes; floats are their IEEE-754 form."""
as_given: Final = msgspec.msgpack.Encoder()
"""For what is in order already."""


def config_digest(config: ShardConfig) -> str:
    """Hex SHA-256 over what of a configuration can change a decision: all settings."""
    return hashlib.sha256(_encoder.encode((config.name, config.settings))).hexdigest()


def cycle_digest(config: str, inputs: CycleInputs, decision: CycleDecision) -> str:
    """Hex SHA-256 over (config digest, inputs, whole decision).

    Offsets, epoch, timings and record ids are not in it: they may differ between two runs that
    decide the same.
    """
    return hashlib.sha256(as_given.encode(plain((config, inputs, decision)))).hexdigest()


def plain(value: Any) -> Any:
    """As maps and lists in order: bytes of an encoded struct change with fields that it leaves out.

    MessagePack has a longer header for maps of 16 entries or more, and msgspec takes the one that a
    struct with all its fields would need. Encode the result with `as_given`.
    """
    return msgspec.to_builtins(value, order="deterministic", builtin_types=(bytes,))
