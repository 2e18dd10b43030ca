# Case 37 (c) (KAI#776): jobs that differ in their topology level alone do not fail alike.
topology net levels=zone,rack
node n1 gpus=2 labels=zone:z1,rack:r1
node n2 gpus=2 labels=zone:z1,rack:r2
queue q quota=-1
group low   queue=q priority=50 pods=4x1gpu min=1 running@n1,n2
group rack  queue=q priority=90 pods=2x2gpu min=2 together=net required=rack
group zone  queue=q priority=90 pods=2x2gpu min=2 together=net required=zone
cycle: evict low-0 low-1 low-2 low-3; pipeline zone-0@n1 zone-1@n2
