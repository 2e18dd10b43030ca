# kubernetes#4583 and others: why is it pending? Not 200 node counts, but the one pod that blocks.
node n1 gpus=2
node n2 gpus=2
node n3 gpus=2
queue q quota=6
group g queue=q min=6 pods=5x1gpu
more g pods=1x1gpu on=zone:moon
cycle: nothing
reason g All 6 pods must start together and 1 of them has no place; pod ns/g-5: no node fits: 3 nodes: no match for the pod's node selector
reason-of g g-0 It could be placed; it waits for pod ns/g-5
reason-of g g-5 no match for the pod's node selector or affinity
