"""The books: intervals, dimensions, roll-ups, decisions, checkpoints (architecture §6).

Times are timestamptz in whole milliseconds of the log's clock, `infinity` = still open. Amounts are
bigint (millicores, bytes, gpu_micro); sums over time are numeric, amount × milliseconds.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE projection_offset (
  projection text PRIMARY KEY,
  "offset"   bigint NOT NULL,             -- of the last snapshot batch folded, -1 = none
  time       timestamptz NOT NULL,        -- of that batch
  state      bytea NOT NULL DEFAULT ''    -- what a restart needs besides the rows
);

CREATE TABLE queue_version (
  queue         text NOT NULL,
  start_at      timestamptz NOT NULL,
  end_at        timestamptz NOT NULL DEFAULT 'infinity',
  uid           text NOT NULL,
  parent        text NOT NULL,            -- '' = top
  path          text[] NOT NULL,          -- from the top queue to this one
  priority      integer NOT NULL,
  quota_cpu     bigint,                   -- NULL = unlimited
  quota_memory  bigint,
  quota_gpu     bigint,
  limit_cpu     bigint,
  limit_memory  bigint,
  limit_gpu     bigint,
  weight_cpu    double precision NOT NULL,
  weight_memory double precision NOT NULL,
  weight_gpu    double precision NOT NULL,
  start_offset  bigint NOT NULL,
  end_offset    bigint,
  uncertain     smallint NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, start_at, start_offset),
  CHECK (end_at >= start_at)
);

CREATE TABLE node_version (
  node         text NOT NULL,
  start_at     timestamptz NOT NULL,
  end_at       timestamptz NOT NULL DEFAULT 'infinity',
  uid          text NOT NULL,
  node_pool    text NOT NULL,
  gpu_type     text NOT NULL,
  state        text NOT NULL,
  start_offset bigint NOT NULL,
  end_offset   bigint,
  uncertain    smallint NOT NULL DEFAULT 0,
  PRIMARY KEY (node, start_at, start_offset),
  CHECK (end_at >= start_at),
  CHECK (state IN ('up', 'down', 'drained'))
);

CREATE TABLE allocation_interval (
  start_at     timestamptz NOT NULL,
  end_at       timestamptz NOT NULL DEFAULT 'infinity',
  pod_uid      text NOT NULL,
  resource     text NOT NULL,
  amount       bigint NOT NULL,
  node         text NOT NULL,
  queue_path   text[] NOT NULL,           -- from the top queue to the leaf, {} = no queue
  namespace    text NOT NULL,
  pod          text NOT NULL,
  user_name    text NOT NULL,
  kind         text NOT NULL,
  node_pool    text NOT NULL,
  gpu_type     text NOT NULL,
  gang         text NOT NULL,             -- name of the pod group, '' = none
  gang_uid     text NOT NULL,
  start_offset bigint NOT NULL,
  end_offset   bigint,
  uncertain    smallint NOT NULL DEFAULT 0,  -- 1 = start, 2 = end lies in an uncovered gap
  PRIMARY KEY (pod_uid, start_at, start_offset, resource),
  CHECK (end_at >= start_at),
  CHECK (amount >= 0)
) PARTITION BY RANGE (start_at);
CREATE INDEX allocation_interval_end ON allocation_interval (end_at);

CREATE TABLE request_interval (
  start_at     timestamptz NOT NULL,
  end_at       timestamptz NOT NULL DEFAULT 'infinity',
  pod_uid      text NOT NULL,
  resource     text NOT NULL,
  amount       bigint NOT NULL,
  queue_path   text[] NOT NULL,
  namespace    text NOT NULL,
  pod          text NOT NULL,
  user_name    text NOT NULL,
  kind         text NOT NULL,
  node_pool    text NOT NULL,             -- asked for, '' = any
  gpu_type     text NOT NULL,             -- asked for, '' = any
  gang         text NOT NULL,
  gang_uid     text NOT NULL,
  start_offset bigint NOT NULL,
  end_offset   bigint,
  uncertain    smallint NOT NULL DEFAULT 0,
  PRIMARY KEY (pod_uid, start_at, start_offset, resource),
  CHECK (end_at >= start_at),
  CHECK (amount >= 0)
) PARTITION BY RANGE (start_at);
CREATE INDEX request_interval_end ON request_interval (end_at);

CREATE TABLE capacity_interval (
  node         text NOT NULL,
  resource     text NOT NULL,
  start_at     timestamptz NOT NULL,
  end_at       timestamptz NOT NULL DEFAULT 'infinity',
  amount       bigint NOT NULL,           -- allocatable
  state        text NOT NULL,
  node_uid     text NOT NULL,
  node_pool    text NOT NULL,
  gpu_type     text NOT NULL,
  start_offset bigint NOT NULL,
  end_offset   bigint,
  uncertain    smallint NOT NULL DEFAULT 0,
  PRIMARY KEY (node, resource, start_at, start_offset),
  CHECK (end_at >= start_at),
  CHECK (amount >= 0),
  CHECK (state IN ('up', 'down', 'drained'))
);
CREATE INDEX capacity_interval_end ON capacity_interval (end_at);

CREATE TABLE rollup_level (
  level      text PRIMARY KEY,            -- hour | day | month
  watermark  timestamptz NOT NULL,        -- buckets that end here or earlier are stored
  dirty_from timestamptz,                 -- earliest change since they were, NULL = none
  frozen     timestamptz NOT NULL         -- nothing before it is ever computed again
);
INSERT INTO rollup_level VALUES
  ('hour', '-infinity', NULL, '-infinity'),
  ('day', '-infinity', NULL, '-infinity'),
  ('month', '-infinity', NULL, '-infinity');

CREATE TABLE cycle (
  time          timestamptz NOT NULL,     -- of the batch that holds the cycle
  shard         text NOT NULL,
  cycle         bigint NOT NULL,
  epoch         bigint NOT NULL,
  "offset"      bigint NOT NULL,          -- last batch that the decision saw
  batch_offset  bigint NOT NULL,          -- batch that holds the cycle
  now_at        timestamptz NOT NULL,
  verdict       text NOT NULL,            -- open | no-evict | closed
  gate_reasons  text[] NOT NULL,
  binds         integer NOT NULL,
  evictions     integer NOT NULL,
  pipelines     integer NOT NULL,
  pending       integer NOT NULL,         -- pod groups with a reason
  took_ms       double precision NOT NULL,
  took          jsonb NOT NULL,
  digest        text NOT NULL,
  config_digest text NOT NULL,
  usage_as_of   bigint NOT NULL,
  usage_stale   boolean NOT NULL,
  flags         text[] NOT NULL,
  PRIMARY KEY (time, shard, cycle)
) PARTITION BY RANGE (time);
CREATE INDEX cycle_number ON cycle (shard, cycle);

CREATE TABLE decision (
  time         timestamptz NOT NULL,
  shard        text NOT NULL,
  cycle        bigint NOT NULL,
  n            integer NOT NULL,          -- place in commit order
  decision     text NOT NULL,             -- bind | evict | pipeline
  pod_uid      text NOT NULL,
  namespace    text NOT NULL,
  pod          text NOT NULL,
  gang_uid     text NOT NULL,
  gang         text NOT NULL,
  queue        text NOT NULL,
  node         text NOT NULL,
  node_uid     text NOT NULL,
  rule         text NOT NULL,             -- the action
  beneficiary  text NOT NULL,             -- pod group uid that an eviction makes way for
  score        double precision,
  gang_size    integer NOT NULL,
  moved        boolean NOT NULL,
  message      text NOT NULL,
  shares       jsonb,                     -- before and after, of an eviction
  supersedes   text NOT NULL,
  batch_offset bigint NOT NULL,
  PRIMARY KEY (time, shard, cycle, n),
  CHECK (decision IN ('bind', 'evict', 'pipeline'))
) PARTITION BY RANGE (time);
CREATE INDEX decision_pod ON decision (pod_uid);
CREATE INDEX decision_gang ON decision (gang_uid);
CREATE INDEX decision_eviction ON decision (time) WHERE decision = 'evict';

CREATE TABLE pending_reason (
  shard        text NOT NULL,
  gang_uid     text NOT NULL,
  first_cycle  bigint NOT NULL,
  last_cycle   bigint,                    -- NULL = still so
  code         text NOT NULL,             -- the dominant one
  codes        text[] NOT NULL,
  reasons      jsonb NOT NULL,            -- the latest, with arguments and parts
  namespace    text NOT NULL,
  gang         text NOT NULL,
  queue        text NOT NULL,
  first_at     timestamptz NOT NULL,
  last_at      timestamptz,
  first_offset bigint NOT NULL,
  last_offset  bigint,
  cycles       bigint,                    -- length of the run, NULL = still so
  PRIMARY KEY (shard, gang_uid, first_cycle)
);
CREATE INDEX pending_reason_open ON pending_reason (shard) WHERE last_cycle IS NULL;
CREATE INDEX pending_reason_name ON pending_reason (namespace, gang);

CREATE TABLE bind_attempt (
  time         timestamptz NOT NULL,
  batch_offset bigint NOT NULL,
  n            integer NOT NULL,          -- row in the batch
  request_id   text NOT NULL,
  attempt      integer NOT NULL,
  binder       text NOT NULL,
  pod_uid      text NOT NULL,
  outcome      text NOT NULL,             -- bound | evicted | failed | refused
  final        boolean NOT NULL,
  code         text NOT NULL,
  node         text NOT NULL,
  status       integer NOT NULL,          -- HTTP, 0 = no call was needed
  reason       text NOT NULL,
  message      text NOT NULL,
  duration_ms  integer NOT NULL,
  PRIMARY KEY (time, batch_offset, n)
) PARTITION BY RANGE (time);
CREATE INDEX bind_attempt_pod ON bind_attempt (pod_uid);
CREATE INDEX bind_attempt_request ON bind_attempt (request_id);

CREATE TABLE checkpoint (
  "offset"  bigint NOT NULL,
  version   integer NOT NULL,
  digest    text NOT NULL,
  time      timestamptz NOT NULL,
  payload   bytea NOT NULL,
  PRIMARY KEY ("offset", version)
);
ALTER TABLE checkpoint ALTER COLUMN payload SET STORAGE EXTERNAL;  -- compressed already
"""

USAGE = """
CREATE TABLE usage_{level} (
  bucket     timestamptz NOT NULL,
  queue      text NOT NULL,               -- '' = pods without a queue; inner queues hold their subtree
  resource   text NOT NULL,
  requested  numeric NOT NULL,            -- amount × ms, waiting
  allocated  numeric NOT NULL,
  quota      numeric NOT NULL,            -- while it had a finite one
  over_quota numeric NOT NULL,            -- while it had a finite one
  unlimited  boolean NOT NULL,            -- at some time in the bucket the quota was unlimited
  PRIMARY KEY (bucket, queue, resource)
);
CREATE TABLE capacity_{level} (
  bucket    timestamptz NOT NULL,
  node_pool text NOT NULL,
  gpu_type  text NOT NULL,
  resource  text NOT NULL,
  capacity  numeric NOT NULL,
  allocated numeric NOT NULL,
  idle      numeric NOT NULL,
  down      numeric NOT NULL,
  over      numeric NOT NULL,
  PRIMARY KEY (bucket, node_pool, gpu_type, resource)
);
"""

TABLES = (
    "projection_offset", "queue_version", "node_version", "allocation_interval",
    "request_interval", "capacity_interval", "rollup_level", "cycle", "decision",
    "pending_reason", "bind_attempt", "checkpoint",
    "usage_hour", "usage_day", "usage_month", "capacity_hour", "capacity_day", "capacity_month",
)


def upgrade() -> None:
    op.execute(UPGRADE)
    for level in ("hour", "day", "month"):
        op.execute(USAGE.format(level=level))


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
