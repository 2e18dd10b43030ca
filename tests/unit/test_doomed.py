"""Who has to go from a node whose devices are shared."""

from kai_es.binder.reservation import Holder, to_delete

USER = Holder(
    namespace="ns",
    name="p",
    uid="u",
    rv=1,
    node="n1",
    phase="Running",
    is_deleting=False,
    groups=("g",),
    is_reservation=False,
    refusal="",
)


def test_a_running_user_without_reservation_goes_once():
    assert to_delete("g", [USER], is_open=False).users == (USER,)
    assert to_delete("g", [USER._replace(is_deleting=True)], is_open=False).users == ()
