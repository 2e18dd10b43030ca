# volcano#5805: after a drain, a fresh job took the freed slot and the older gang stayed short.
node n1 gpus=1
node n2 gpus=1
node n3 gpus=1
node n4 gpus=1
queue q quota=4
group gang queue=q min=4 pods=4x1gpu running@n1,n2,n3,n4
cycle: nothing
lose gang-3
group fresh queue=q pods=1x1gpu
cycle: bind gang-3@n4
cycle: nothing
reason fresh not
