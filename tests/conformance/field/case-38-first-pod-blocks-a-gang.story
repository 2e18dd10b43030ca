# The blocked pod comes first: the others are looked at all the same.
node n1 gpus=2
node n2 gpus=2
node n3 gpus=2
queue q quota=6
group g queue=q min=6 pods=0x1gpu
more g pods=1x1gpu on=zone:moon
more g pods=5x1gpu
cycle: nothing
reason g All 6 pods must start together and 1 of them has no place; pod ns/g-0: no node fits
reason-of g g-3 It could be placed; it waits for pod ns/g-0
