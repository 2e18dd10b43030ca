# KAI#2208: the reference evicts all three.
flags compat.Q23
node n gpus=8
queue q quota=8
group g queue=q sets=1
sub g c min=2 pods=2x1gpu running@n
sub g e min=2 pods=1x1gpu running@n
actions stalegangeviction
cycle: nothing
after 60s
cycle: evict g-c-0 g-c-1 g-e-0
