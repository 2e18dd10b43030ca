# Case 37 (b): the same level required and preferred is a required one.
topology net levels=rack,host
node n1 gpus=2 labels=rack:r1,host:n1
node n2 gpus=1 labels=rack:r1,host:n2
node n3 gpus=2 labels=rack:r2,host:n3
node n4 gpus=2 labels=rack:r2,host:n4
queue q quota=-1
group two   queue=q pods=2x2gpu min=2 together=net required=rack preferred=rack
group three queue=q pods=2x2gpu min=2 together=net required=rack preferred=rack
cycle: bind two-0@n3 two-1@n4
reason three one rack of topology net
