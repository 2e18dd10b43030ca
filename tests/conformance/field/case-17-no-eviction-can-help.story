# Cases 17 (KAI#1502): what no eviction can give ends the search before it starts.
node n1 gpus=2
queue q1 quota=2
queue q2 quota=0
group low  queue=q2 pods=2x1gpu min=1 running@n1
group volume queue=q1 priority=90 pods=1x1gpu claims=data
group maps   queue=q1 priority=90 pods=1x1gpu config_maps=settings
group large  queue=q1 priority=90 pods=1x4gpu
cycle: nothing
scenarios 0
reason volume persistentvolumeclaim "data" not found
reason maps config maps are missing: settings
reason large no single node is large enough
