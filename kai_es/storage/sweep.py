"""The sums over a stretch of time [lo, hi): who used what, and what a node's capacity was for.

Intervals are cut to the stretch and swept: at every point where any level changes a new segment
begins, within a segment all levels are constant. Amounts are bigint; times are whole milliseconds;
every product and every sum is numeric, cast before multiplying: 1 TiB for one hour is 0.43 × 2^63
byte-milliseconds.

A pod holds its amount while the node's capacity is not down. Where a node has no capacity row (it
is gone, or not seen yet) it is down.
"""

from typing import Final

MS: Final = "(extract(epoch FROM {0}) * 1000)::bigint::numeric"
"""Length of an interval in milliseconds; `extract` of an interval is numeric, so this is exact."""

_LENGTH: Final = MS.format("t - s")

HELD: Final = """
capacity AS (
  SELECT row_number() OVER () AS id, node, resource, amount, state, node_pool, gpu_type,
         greatest(start_at, :lo) AS s, least(end_at, :hi) AS t
  FROM capacity_interval WHERE start_at < :hi AND end_at > :lo),
held AS (
  SELECT a.queue_path, a.namespace, a.user_name, a.kind, a.node, a.resource, a.amount,
         c.node_pool, c.gpu_type,
         greatest(a.start_at, c.s) AS s, least(a.end_at, c.t) AS t
  FROM allocation_interval AS a
  JOIN capacity AS c ON c.node = a.node AND c.resource = a.resource AND c.state <> 'down'
   AND c.s < a.end_at AND c.t > a.start_at
  WHERE a.start_at < :hi AND a.end_at > :lo),
waiting AS (
  SELECT queue_path, namespace, user_name, kind, node_pool, gpu_type, resource, amount,
         greatest(start_at, :lo) AS s, least(end_at, :hi) AS t
  FROM request_interval WHERE start_at < :hi AND end_at > :lo)
"""
"""Common tables: `capacity`, `held` (cut to the time a node is not down), `waiting`."""

NODES: Final = f"""
allocated AS (
  SELECT node, resource, amount, greatest(start_at, :lo) AS s, least(end_at, :hi) AS t
  FROM allocation_interval WHERE start_at < :hi AND end_at > :lo),
point AS (
  SELECT node, resource, at, sum(amount) AS amount, sum(id) AS id FROM (
    SELECT node, resource, s AS at, amount::numeric, 0::numeric AS id FROM allocated
    UNION ALL SELECT node, resource, t, -amount::numeric, 0 FROM allocated
    UNION ALL SELECT node, resource, s, 0, id::numeric FROM capacity
    UNION ALL SELECT node, resource, t, 0, -id::numeric FROM capacity
  ) AS change GROUP BY node, resource, at),
level AS (
  SELECT node, resource, at AS s, lead(at) OVER w AS t,
         sum(amount) OVER w AS held, sum(id) OVER w AS id
  FROM point WINDOW w AS (PARTITION BY node, resource ORDER BY at)),
segment AS (
  SELECT c.node, c.resource, c.state, c.node_pool, c.gpu_type,
         c.amount::numeric AS capacity, l.held, {_LENGTH.replace("t - s", "l.t - l.s")} AS ms
  FROM level AS l JOIN capacity AS c ON c.id = l.id WHERE l.t > l.s),
node_time AS (
  SELECT node, resource, node_pool, gpu_type,
    sum(capacity * ms) AS capacity,
    sum(CASE state WHEN 'down' THEN 0 ELSE held * ms END) AS allocated,
    sum(CASE state WHEN 'up' THEN greatest(capacity - held, 0) * ms ELSE 0 END) AS idle,
    sum(CASE state WHEN 'down' THEN capacity * ms
                   WHEN 'drained' THEN greatest(capacity - held, 0) * ms ELSE 0 END) AS down,
    sum(CASE state WHEN 'down' THEN 0 ELSE greatest(held - capacity, 0) * ms END) AS over
  FROM segment GROUP BY node, resource, node_pool, gpu_type)
"""
"""Common tables after `HELD`: `node_time`, the sweep per node and resource.

The capacity intervals of one node and resource never overlap, so the running sum of their ids is
the id of the one in force. A drained node takes no new pods: what is not held there is down.
"""

QUEUES: Final = f"""
charge AS (
  SELECT q AS queue, resource, amount, s, t
  FROM held CROSS JOIN LATERAL unnest(
    CASE WHEN queue_path = '{{}}' THEN ARRAY[''] ELSE queue_path END) AS q),
quota AS (
  SELECT v.queue, r.resource, r.amount,
         greatest(v.start_at, :lo) AS s, least(v.end_at, :hi) AS t
  FROM queue_version AS v CROSS JOIN LATERAL (VALUES
    ('cpu', v.quota_cpu), ('memory', v.quota_memory), ('gpu', v.quota_gpu)) AS r (resource, amount)
  WHERE v.start_at < :hi AND v.end_at > :lo),
q_point AS (
  SELECT queue, resource, at, sum(held) AS held, sum(quota) AS quota, sum(n) AS n FROM (
    SELECT queue, resource, s AS at, amount::numeric AS held, 0::numeric AS quota, 0 AS n
    FROM charge
    UNION ALL SELECT queue, resource, t, -amount::numeric, 0, 0 FROM charge
    UNION ALL SELECT queue, resource, s, 0, amount::numeric, 1 FROM quota WHERE amount IS NOT NULL
    UNION ALL SELECT queue, resource, t, 0, -amount::numeric, -1 FROM quota
      WHERE amount IS NOT NULL
  ) AS change GROUP BY queue, resource, at),
q_level AS (
  SELECT queue, resource, at AS s, lead(at) OVER w AS t,
         sum(held) OVER w AS held, sum(quota) OVER w AS quota, sum(n) OVER w AS n
  FROM q_point WINDOW w AS (PARTITION BY queue, resource ORDER BY at)),
q_sum AS (
  SELECT queue, resource, sum(held * {_LENGTH}) AS allocated, sum(quota * {_LENGTH}) AS quota,
         sum(CASE n WHEN 0 THEN 0 ELSE greatest(held - quota, 0) * {_LENGTH} END) AS over_quota
  FROM q_level WHERE t > s GROUP BY queue, resource),
q_waiting AS (
  SELECT q AS queue, resource, sum(amount::numeric * {_LENGTH}) AS requested
  FROM waiting CROSS JOIN LATERAL unnest(
    CASE WHEN queue_path = '{{}}' THEN ARRAY[''] ELSE queue_path END) AS q
  GROUP BY q, resource),
q_unlimited AS (
  SELECT DISTINCT queue, resource FROM quota WHERE amount IS NULL),
queue_time AS (
  SELECT queue, resource, coalesce(w.requested, 0) AS requested,
         coalesce(s.allocated, 0) AS allocated, coalesce(s.quota, 0) AS quota,
         coalesce(s.over_quota, 0) AS over_quota, u.queue IS NOT NULL AS unlimited
  FROM q_sum AS s FULL JOIN q_waiting AS w USING (queue, resource)
  FULL JOIN q_unlimited AS u USING (queue, resource))
"""
"""Common tables after `HELD`: `queue_time`, per queue (its subtree included) and resource.

The queues above are those at the time of use. Where the quota is unlimited nothing is over it.
"""
