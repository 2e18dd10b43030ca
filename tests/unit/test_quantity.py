import pytest

from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.quantity import capacity_floor, request_ceil


@pytest.mark.parametrize(
    ("text", "scale", "ceil", "floor"),
    [
        ("500m", 1000, 500, 500),
        ("2", 1000, 2000, 2000),
        ("0.0001", 1000, 1, 0),
        ("8Gi", 1, 8 * 2**30, 8 * 2**30),
        ("1e3", 1, 1000, 1000),
        ("1.5k", 1, 1500, 1500),
        (".5", 1000, 500, 500),
        (3, 1, 3, 3),
    ],
)
def test_quantity_units_and_rounding(text, scale, ceil, floor):
    assert request_ceil(text, scale=scale, what="Pod a/b", field="cpu") == ceil
    assert capacity_floor(text, scale=scale, what="Node n", field="cpu") == floor


@pytest.mark.parametrize("bad", ["", "x", "1x", "--1", "-1", None, True, [], "1e", "9" * 80, "8E"])
def test_quantity_refuses_with_object_and_field(bad):
    with pytest.raises(InvalidObjectError, match=r"Pod a/b: cpu is .*want"):
        request_ceil(bad, scale=1, what="Pod a/b", field="cpu")
