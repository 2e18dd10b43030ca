"""lz4 for Faust's Kafka client, by the package that our own client uses.

The log's batches are lz4. Faust reads with aiokafka, which looks for another package (cramjam) to
decompress them and otherwise refuses the topic; the format is the same.
"""

import importlib
from typing import Final

import lz4.frame

_MODULES: Final = (
    "aiokafka.codec",
    "aiokafka.record.default_records",
    "aiokafka.record.legacy_records",
    "aiokafka.record._crecords.default_records",
    "aiokafka.record._crecords.legacy_records",
)


def install() -> None:
    """Let aiokafka decompress lz4 if it cannot."""
    codec = importlib.import_module("aiokafka.codec")
    if codec.has_lz4():
        return
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:  # the compiled form or the plain one is not there
            continue
        if hasattr(module, "lz4_decode"):
            vars(module)["lz4_decode"] = _decompress  # bound by name where it is used
    vars(codec)["has_lz4"] = _yes


def _decompress(payload: bytes) -> bytes:
    return bytes(lz4.frame.decompress(payload))


def _yes() -> bool:
    return True
