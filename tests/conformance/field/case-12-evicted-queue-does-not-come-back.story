# volcano#4947: an evicted queue drops to share 0 and wins its resources back for ever.
node n cpu=8
queue q1 cpu_quota=3
queue q2 cpu_quota=5
group q1-runs queue=q1 pods=1x4cpu running@n
group q2-runs queue=q2 pods=1x1cpu running@n
group q2-asks queue=q2 pods=1x4cpu
cycle: evict q1-runs-0; pipeline q2-asks-0@n
cycle: bind q2-asks-0@n
cycle: nothing
cycle: nothing
cycle: nothing
cycle: nothing
cycle: nothing
cycle: nothing
cycle: nothing
cycle: nothing
