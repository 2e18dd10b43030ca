"""What waits at the status writer, and which events are left out."""

from kai_es.status.desk import Allowance, Desk, Key
from kai_es.status.events import About, KubeEvent
from kai_es.status.outbox import BURST, WAITING_MAX, Outbox
from kai_es.status.said import NORMAL, WARNING

A, B = Key("Pod", "a"), Key("Pod", "b")


def an_event(n, kind=NORMAL):
    about = About("Pod", "ns", f"p{n}", f"uid-{n}")
    return KubeEvent(about, kind, "Reason", "message", "test", n)


def test_a_thing_is_handed_out_once_when_it_is_due():
    desk = Desk()
    desk.want(A, 0, 2)
    desk.want(A, 0, 5)
    desk.want(B, 0, 9)
    desk.want(B, 0, 1)
    assert [key for key, _ in desk.due(0.5)] == []
    assert [key for key, _ in desk.due(3)] == [B, A]
    assert [key for key, _ in desk.due(99)] == []


def test_what_is_postponed_remembers_since_when_it_waits():
    desk = Desk()
    desk.want(A, 10, 1)
    ((_, waiting),) = desk.due(11)
    desk.postpone(A, waiting, 11, 5)
    desk.want(A, 12, 1)
    ((_, waiting),) = desk.due(14)
    assert waiting.since_s == 10
    assert list(desk.due(99)) == []


def test_what_waits_is_counted_by_kind():
    desk = Desk()
    group = Key("PodGroup", "a")
    for key in (A, A, B, group):
        desk.want(key, 0, 5)
        desk.want(key, 0, 1)
    assert (desk.n_of("Pod"), desk.n_of("PodGroup"), len(desk)) == (2, 1, 3)
    ((key, waiting), *_) = desk.due(1)
    desk.drop(A)
    desk.drop(A)
    assert (key, desk.n_of("Pod"), len(desk)) == (A, 0, 0)
    desk.postpone(key, waiting, 1, 1)
    assert (desk.n_of("Pod"), len(desk)) == (1, 1)


def test_an_allowance_has_to_make_up_for_a_debt():
    allowance = Allowance(per_s=2, burst=4)
    assert allowance.has(0)
    allowance.spend(10)
    assert not allowance.has(2)
    assert allowance.has(4)


def test_the_same_is_told_once_and_warnings_first():
    outbox = Outbox()
    outbox.put([an_event(1), an_event(2, WARNING), an_event(1)])
    told = [outbox.take(0) for _ in range(3)]
    assert [event and event.about.name for event in told] == ["p2", "p1", None]


def test_of_too_many_events_the_oldest_that_warn_of_nothing_are_left_out():
    outbox = Outbox()
    outbox.put([an_event(0, WARNING), *(an_event(n) for n in range(1, WAITING_MAX + 10))])
    assert len(outbox) == WAITING_MAX
    assert outbox.take(0).about.name == "p0"
    assert outbox.take(0).about.name == "p11"
    n = 2
    while outbox.take(0) is not None:
        n += 1
    assert n == BURST


def test_a_new_leader_tells_what_is_not_long_ago():
    outbox = Outbox()
    outbox.put([an_event(1), an_event(2, WARNING), an_event(3)])
    outbox.forget_before(2)
    assert [outbox.take(0).about.name for _ in range(2)] == ["p2", "p3"]
