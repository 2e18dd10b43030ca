# Case 37 (d) (kueue#14723): a preemptor keeps its rack until its victims are gone, and evicts once.
topology net levels=rack
node n1 gpus=2 labels=rack:r1
node n2 gpus=2 labels=rack:r2
queue q quota=-1
group a queue=q priority=50 pods=2x1gpu min=2 running@n1
group b queue=q priority=50 pods=2x1gpu min=2 running@n2
group one queue=q priority=90 pods=2x1gpu min=2 together=net required=rack
linger 3
cycle: evict b-0 b-1; pipeline one-0@n2 one-1@n2
group two queue=q priority=90 pods=2x1gpu min=2 together=net required=rack
cycle: pipeline one-0@n2 one-1@n2; evict a-0 a-1; pipeline two-0@n1 two-1@n1
cycle: pipeline one-0@n1 one-1@n1 two-0@n2 two-1@n2
cycle: pipeline one-0@n1 one-1@n1 two-0@n2 two-1@n2
cycle: bind one-0@n2 one-1@n2; pipeline two-0@n1 two-1@n1
cycle: bind two-0@n1 two-1@n1
