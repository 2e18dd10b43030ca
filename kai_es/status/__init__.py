"""Statuses of pods, pod groups and queues, and events: the one writer of each status field.

In: `snapshot`, folded by the same `World` as everywhere. Out: patches of statuses and annotations,
events and, where asked for, mirrored BindRequests, through the port `ClusterWrites`. Never: a read
of the API server to learn what to write; a status that a decision depends on.

Pure: `amounts`, `sharing`, `shares` (one pod), `tally` (sums of groups and queues), `conditions`,
`said` (what a cycle says of a group), `pods`, `groups`, `queues` (what is to be written), `follow`
(the fold of all that). Shell: `desk`, `writer`, `events`, `mirror`, `service`.
"""
