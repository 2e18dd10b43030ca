# Kind of case 12 as the reference does: the same pod is moved in every other cycle, for ever.
node a gpus=2 labels=pool:x
node b gpus=2
queue q quota=4
group mover queue=q pods=1x2gpu running@a
group asks queue=q pods=1x2gpu on=pool:x
flags compat.C15
cycle: move mover-0@b; pipeline asks-0@a
cycle: bind mover-0@a
cycle: move mover-0@b; pipeline asks-0@a
cycle: bind mover-0@a
