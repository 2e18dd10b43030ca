from kai_es.scheduler import flags
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.solve.signature import signature_of
from tests.scheduler_world import World, a_spec


def signatures(rules=flags.NONE):
    world = World()
    world.queue("q")
    world.node("n", 8)
    world.group("one-more", "n", "", min_member=1)
    world.group("two-more", "n", "", "", min_member=1)
    world.group("too-few", "", "", min_member=1)
    world.group("gang-of-three", "", "", "", min_member=3)
    world.group("of-another-kind", "n", "", min_member=1, preemptibility="non-preemptible")
    world.group("with-a-selector", "n", "", min_member=1, spec=a_spec(node_selector={"a": "b"}))
    session = world.session(flags=rules)
    jobs = session.columns.jobs.values()
    return {job.name: signature_of(session, Work(job)) for job in jobs}


def test_the_pods_that_come_next_tell_which_jobs_fail_alike():
    found = signatures()
    assert found["one-more"] == found["two-more"]
    assert found["too-few"] == found["gang-of-three"]
    rest = {name: found[name] for name in found if name not in ("two-more", "gang-of-three")}
    assert len(set(rest.values())) == len(rest)


def test_compat_tells_jobs_apart_by_how_many_pods_they_lack():
    found = signatures({flags.SIGNATURES_OF_ALL_TASKS})
    assert found["one-more"] != found["two-more"] == found["too-few"] != found["gang-of-three"]
