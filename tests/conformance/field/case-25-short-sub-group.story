# KAI#2208: a sub-group below its own minimum keeps GPUs for ever if the rest of the job runs.
node n gpus=8
queue q quota=8
group g queue=q sets=1
sub g c min=2 pods=2x1gpu running@n
sub g e min=2 pods=1x1gpu running@n
actions stalegangeviction
cycle: nothing
after 58s
cycle: nothing
after 1s
cycle: evict g-e-0
