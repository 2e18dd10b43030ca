# Kind of case 12: a pod that was moved away comes back first and takes the room again.
node a gpus=2 labels=pool:x
node b gpus=2
queue q quota=4
group mover queue=q pods=1x2gpu running@a
group asks queue=q pods=1x2gpu on=pool:x
cycle: move mover-0@b; pipeline asks-0@a
cycle: bind asks-0@a; bind mover-0@b
cycle: nothing
