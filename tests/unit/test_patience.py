"""When the demo gives up."""

import os

from kai_es.runtime.patience import GIVEN_UP_S, STALLED_S, Patience
from kai_es.runtime.supervise import Child


def test_it_is_over_when_nothing_changes_and_nobody_works():
    patience = Patience(0.0)
    assert not patience.is_over("a", now_s=1, cpu_s=1)
    assert not patience.is_over("a", now_s=1 + STALLED_S, cpu_s=1)
    assert not patience.is_over("b", now_s=2 + STALLED_S, cpu_s=1), "a change"
    late = 3 + 2 * STALLED_S
    assert not patience.is_over("b", now_s=late, cpu_s=1 + STALLED_S / 4), "a long cycle"
    assert patience.is_over("b", now_s=late, cpu_s=1 + STALLED_S / 40)


def test_work_without_any_result_is_not_waited_for_for_ever():
    patience = Patience(0.0)
    patience.is_over("a", now_s=0, cpu_s=0)
    assert not patience.is_over("a", now_s=GIVEN_UP_S, cpu_s=GIVEN_UP_S)
    assert patience.is_over("a", now_s=GIVEN_UP_S + 1, cpu_s=GIVEN_UP_S)


def test_a_child_tells_its_cpu():
    class Me(Child):
        pid = os.getpid()

    assert 0 < Me("me", []).cpu_s() <= sum(os.times()[:2]) + 1
    assert Child("nobody", []).cpu_s() == 0
