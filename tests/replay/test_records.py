"""A record of every schema and version ever written reads as it was meant when it was written."""

import pytest

from kai_es.events import codec
from kai_es.events.catalogue import SCHEMAS
from tests.replay.make_records import kept, plain

KEPT = kept()


def missing(want, got, where=""):
    """The first place where `got` has not what `want` has; later releases may have more."""
    if isinstance(want, dict) and isinstance(got, dict):
        places = [(f"{where}.{key}", want[key], got.get(key)) for key in want]
    elif isinstance(want, list) and isinstance(got, list) and len(got) >= len(want):
        places = [(f"{where}[{n}]", a, b) for n, (a, b) in enumerate(zip(want, got, strict=False))]
    else:
        return None if want == got else f"{where}: {want!r} became {got!r}"
    return next(filter(None, (missing(a, b, at) for at, a, b in places)), None)


@pytest.mark.parametrize("line", KEPT, ids=lambda line: f"{line['schema']}-v{line['version']}")
def test_a_kept_record_reads_as_it_was_meant(line):
    envelope = codec.decode(bytes.fromhex(line["bytes"]))
    assert (envelope.schema, envelope.version) == (line["schema"], line["version"])
    assert missing(line["record"], plain(codec.unpack(envelope))) is None


def test_every_version_of_every_schema_is_kept():
    have = {(line["schema"], line["version"]) for line in KEPT}
    want = {(name, n) for name, s in SCHEMAS.items() for n in range(1, s.version + 1)}
    assert have == want, "python -m tests.replay.make_records"
