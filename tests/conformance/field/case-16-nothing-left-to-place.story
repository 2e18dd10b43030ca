# KAI#1664: all pending pods wait for released resources already; preempt fell over.
node n gpus=2
queue q quota=2
group low queue=q priority=50 pods=2x1gpu running@n
group high queue=q priority=75 pods=2x1gpu
end low-0
end low-1
cycle: pipeline high-0@n; pipeline high-1@n
