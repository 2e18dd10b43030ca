# KAI#1968: gangs of which a pod has finished looked stale and were killed after a minute.
node n gpus=4
queue q quota=4
group gang queue=q min=4 pods=4x1gpu running@n
cycle: nothing
succeed gang-0
cycle: nothing
after 61s
cycle: nothing
