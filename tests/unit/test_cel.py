"""Selectors of devices: what an expression is worth, and what it cannot be made to do."""

from time import perf_counter

import pytest

from kai_es.kube.cel import CelError, SeenDevice, compile_expression
from kai_es.kube.cel.regex import regex
from kai_es.kube.devices import Device, Version

GPU = SeenDevice(
    Device(
        name="gpu-0",
        attributes={
            "gpu.example.com/type": "gpu",
            "gpu.example.com/productName": "NVIDIA A100-SXM4-40GB",
            "gpu.example.com/index": 3,
            "gpu.example.com/shared": False,
            "gpu.example.com/driverVersion": Version("550.54.15"),
            "other.org/numa": 1,
        },
        capacity={"gpu.example.com/memory": "40Gi"},
    ),
    "gpu.example.com",
)


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        "device.driver == 'gpu.example.com'",
        'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == "gpu"',
        "device.attributes['gpu.example.com'].productName.lowerAscii().matches('^.*a100.*$')",
        "device.attributes['gpu.example.com'].index < 4",
        "!device.attributes['gpu.example.com'].shared",
        "device.attributes['other.org'].numa in [0, 1]",
        "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0",
        "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('10Gi'))",
        "device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('535.0.0'))",
        "device.attributes['gpu.example.com'].driverVersion.major() == 550",
        "has(device.attributes['gpu.example.com'].type)",
        "!has(device.attributes['gpu.example.com'].nothing)",
        "!('model' in device.attributes['unknown.org'])",
        "cel.bind(a, device.attributes['gpu.example.com'], a.type == 'gpu' && a.index > 1)",
        "['A100', 'H100'].exists(m, device.attributes['gpu.example.com'].productName.contains(m))",
        "[1, 2, 3].all(n, n > 0) && [1, 2, 3].filter(n, n > 1).size() == 2",
        "[1, 2].map(n, n * 2) == [2, 4] && [1, 1].exists_one(n, n == 2) == false",
        "size('abc') == 3 && 'a' + 'b' == 'ab' && r'\\d' == '\\\\d'",
        "7 / 2 == 3 && -7 / 2 == -3 && -7 % 2 == -1 && 1.5 * 2.0 == 3.0",
        "1 == 1.0 && 1 != '1' && !(true == 1) && {'a': 1} == {'a': 1}",
        "false || device.attributes['x'].y == 1 || true",
        "!(device.attributes['x'].y == 1 && false)",
        "device.driver.startsWith('gpu') ? true : false",
        "'a,b'.split(',')[1] == 'b' && 'abc'.substring(1) == 'bc' && 'abc'.charAt(0) == 'a'",
        "semver('1.0.0-rc.1').isLessThan(semver('1.0.0')) && quantity('1k').asInteger() == 1000",
        "0x10 == 16 && int('5') == 5 && double('0.5') < 1.0 && string(5) == '5'",
        "// a comment\n true",
    ],
)
def test_a_device_matches(expression):
    assert GPU.matches(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "want a value"),
        ("device.", "want a name"),
        ("device.driver ==", "want a value"),
        ("1 +", "want a value"),
        ("device.driver", "want true or false"),
        ("device.attributes['gpu.example.com'].nothing == 1", "no such key: nothing"),
        ("other", "no variable other"),
        ("'a' < 1", "not defined"),
        ("1 / 0 == 1", "division by zero"),
        ("9223372036854775807 + 1 > 0", "out of range"),
        ("nonsense(1)", "no function nonsense"),
        ("quantity('x') == 1", "no quantity"),
        ("semver('1.0') == 1", "no semantic version"),
        ("'a'.matches('(')", "without an end"),
        ("[1][5] == 1", "out of range"),
        ("true ? 1 : 2", "want true or false"),
        ("'a' 'b'", "want 'the end'"),
        ("`", "unexpected character"),
        ("'\\q' == 'q'", "no escape"),
        ("(" * 60 + "true" + ")" * 60, "nested"),
        ("!" * 120 + "true", "more than"),
        ("a" + ".b" * 300, "more than"),
        ("1" + " + 1" * 300 + " == 1", "more than"),
        ("'" + "x" * 20_000 + "' == ''", "characters"),
    ],
)
def test_what_has_no_value_says_why(expression, problem):
    with pytest.raises(CelError, match=problem):
        GPU.matches(expression)


def doubling(times):
    """A text that doubles so many times."""
    bindings = [f"cel.bind(a{n + 1}, a{n} + a{n}, " for n in range(times)]
    return "cel.bind(a0, 'xxxxxxxx', " + "".join(bindings) + "true" + ")" * (times + 1)


def test_long_alternatives_are_no_nesting():
    assert GPU.matches(" || ".join(["false"] * 500 + ["true"]))


@pytest.mark.parametrize(
    "expression",
    [
        doubling(20),
        "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, "
        "[1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, true)))))",
        "'" + "a" * 5000 + "!'.matches('(a|aa|aaa|b)*c{300}d{300}e{300}')",
    ],
)
def test_work_is_bounded(expression):
    started = perf_counter()
    with pytest.raises(CelError):
        compile_expression(expression).value({})
    assert perf_counter() - started < 2


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a+b?", "xaax", True),
        ("^a+$", "aab", False),
        ("^(?:ab|c)*$", "abcab", True),
        ("[^a-c]", "abc", False),
        (r"[]x]", "]", True),
        (r"\d{2,3}$", "a123", True),
        (r"^\d{2}$", "123", False),
        (r"\bfoo\b", "a foo b", True),
        (r"\bfoo\b", "afoo", False),
        (r"[[:alpha:]\-_]+", "-", True),
        ("(?i)A100", "nvidia a100", True),
        ("(?P<name>x)y", "xy", True),
        ("a{,2}", "a{,2}", True),
        ("", "", True),
        (r"\.", "a", False),
        ("a*?b", "aab", True),
        ("(a*)*b", "aaaa", False),
    ],
)
def test_patterns(pattern, text, found):
    assert regex(pattern).found_in(text) is found


BROKEN = ("(", "[a", "*", "a**", "(?=x)", r"\q", "a{2000}", "[b-a]", ")")


@pytest.mark.parametrize("pattern", BROKEN)
def test_patterns_that_are_none(pattern):
    with pytest.raises(CelError, match="pattern"):
        regex(pattern)


def test_no_text_makes_a_pattern_slow():
    started = perf_counter()
    assert not regex("^(a+)+$").found_in("a" * 2000 + "!")
    assert perf_counter() - started < 1


def test_the_deepest_expression_does_not_exhaust_the_stack():
    deep = "(" * 28 + "1" + "+1" * 98 + ")" * 28
    assert compile_expression(deep).value({}) == 99
