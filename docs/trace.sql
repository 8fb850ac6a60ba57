-- Ten questions to a trace, in SQL as DuckDB reads it. Each is a statement of
-- its own under its name; put your trace's directory in place of t1. A test
-- runs them and compares the answers with those of `observer report t1`.

-- name: setup
-- Distributions lie in buckets of 0.1 %; a quantile is the largest value of
-- its bucket, as in the report. This is the bucket of a single value.
CREATE OR REPLACE MACRO bucket_shift(ns) AS greatest(0, floor(log2(greatest(ns, 1)))::INT - 10);
CREATE OR REPLACE MACRO bucket(ns) AS (((ns >> bucket_shift(ns)) + 1) << bucket_shift(ns)) - 1;
-- A difference in (-1 us, 0) is two CPUs' clocks, one below is an error.
CREATE OR REPLACE MACRO judged(ns) AS CASE WHEN ns >= 0 THEN ns WHEN ns > -1000 THEN 0 END;
-- The journeys with their components. Columns that follow from others are
-- null in the files.
CREATE OR REPLACE VIEW points AS
SELECT * REPLACE (
  CASE WHEN dev_queue_ns IS NOT NULL AND hops > 0 AND hop_start_ns IS NULL
       THEN coalesce(shaper_ns, xmit_ns - dev_queue_ns, 0) END AS shaper_ns,
  coalesce(slowest_hop_ns, shaper_ns, xmit_ns - dev_queue_ns, 0) AS slowest_hop_ns,
  coalesce(slowest_qdisc_ns, dequeue_ns - dev_queue_ns, 0) AS slowest_qdisc_ns,
  coalesce(slowest_ifindex, ifindex) AS slowest_ifindex)
FROM 't1/packets-*.parquet';
CREATE OR REPLACE VIEW journeys AS
WITH known AS (
  SELECT *,
    judged(dev_queue_ns - offer_ns) AS sender_queue,
    judged(rx_ns - dev_queue_ns - shaper_ns) AS wire,
    judged(app_dequeue_ns - rx_ns) AS receiver,
    -- The offer of another host is on another clock.
    CASE WHEN dev_queue_ns IS NOT NULL OR flags & 8 = 0 THEN judged(app_dequeue_ns - offer_ns) END AS total_ns,
    sender_queue IS NOT NULL AND shaper_ns IS NOT NULL AND wire IS NOT NULL AND receiver IS NOT NULL
      AND total_ns IS NOT NULL AS complete,
    greatest(dev_queue_ns, offer_ns) AS left_ns,
    greatest(rx_ns, left_ns + shaper_ns) AS came_ns
  FROM points)
SELECT * EXCLUDE (sender_queue, wire, receiver, left_ns, came_ns),
  CASE WHEN complete THEN left_ns - offer_ns ELSE sender_queue END AS sender_queue_ns,
  CASE WHEN complete THEN came_ns - left_ns - shaper_ns ELSE wire END AS wire_ns,
  CASE WHEN complete THEN greatest(app_dequeue_ns, came_ns) - came_ns ELSE receiver END AS receiver_ns
FROM known;

-- name: quantiles
-- How long did it take, by component? (Not null from 10/(1 - q) datagrams on.)
WITH buckets AS (
  SELECT metric, to_ns, sum(count) AS n FROM 't1/histograms-*.parquet' WHERE scope = 'all' GROUP BY ALL),
ranked AS (
  SELECT metric, to_ns, sum(n) OVER (PARTITION BY metric ORDER BY to_ns) AS upto,
         sum(n) OVER (PARTITION BY metric) AS total FROM buckets),
largest AS (SELECT metric, max(to_ns) AS max_ns FROM 't1/histograms-*.parquet' WHERE scope = 'all_max' GROUP BY ALL)
SELECT metric, q, least(min(to_ns), any_value(max_ns)) AS ns
FROM ranked JOIN largest USING (metric), (VALUES ('p50', 2), ('p90', 10), ('p99', 100), ('p99_9', 1000)) quantiles(q, one_in)
WHERE total >= 10 * one_in AND upto >= total - total // one_in
GROUP BY ALL ORDER BY ALL;

-- name: balance
-- What became of the datagrams? The counts of the last segment lose nothing.
WITH segments AS (
  SELECT number, tables.flows FROM read_json('t1/segment-*.json', columns = {number: 'BIGINT', tables: 'STRUCT(flows
    STRUCT(admitted BOOLEAN, sent UBIGINT, delivered UBIGINT, dropped UBIGINT, delivered_bytes UBIGINT)[])'})),
last AS (SELECT unnest(flows) AS f FROM segments WHERE number = (SELECT max(number) FROM segments))
SELECT sum(f.sent)::BIGINT AS sent, sum(f.delivered)::BIGINT AS delivered, sum(f.dropped)::BIGINT AS dropped,
       sum(f.delivered_bytes)::BIGINT AS delivered_bytes
FROM last WHERE f.admitted;

-- name: drops
-- Why were they dropped? The numbers are the recording kernel's; meta.json
-- names them.
SELECT coalesce(map_extract(reasons, drop_reason::VARCHAR)[1], 'REASON_' || drop_reason) AS reason, count(*) AS datagrams
FROM 't1/packets-*.parquet',
     (SELECT reasons FROM read_json('t1/meta.json', columns = {reasons: 'MAP(VARCHAR, VARCHAR)'})) meta
WHERE outcome = 2 GROUP BY ALL ORDER BY ALL;

-- name: tail
-- What is the slowest hundredth made of? Of the bucket in which the border
-- falls, as many as belong above it, with that bucket's mean.
WITH buckets AS (
  SELECT to_ns, metric, sum(count) AS n, sum(sum_ns) AS ns FROM 't1/histograms-*.parquet' WHERE scope = 'tail' GROUP BY ALL),
counted AS (
  SELECT to_ns, n, coalesce(sum(n) OVER (ORDER BY to_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS above,
         sum(n) OVER () // 100 AS wanted
  FROM buckets WHERE metric = 'total'),
taken AS (SELECT to_ns, greatest(0, least(n, wanted - above)) / n AS fraction FROM counted),
sums AS (SELECT metric, sum(fraction * ns) AS ns FROM buckets JOIN taken USING (to_ns) GROUP BY ALL)
SELECT metric, ns / (SELECT ns FROM sums WHERE metric = 'total') AS share
FROM sums WHERE metric IN ('sender_queue', 'shaper', 'wire', 'receiver') ORDER BY ALL;

-- name: flows
-- Which flows have the longest tail? (Buckets of 1 % here.)
WITH buckets AS (
  SELECT run_id, stream, to_ns, sum(count) AS n
  FROM 't1/histograms-*.parquet' WHERE scope = 'flow' AND metric = 'total' GROUP BY ALL),
ranked AS (
  SELECT *, sum(n) OVER (PARTITION BY run_id, stream ORDER BY to_ns) AS upto,
         sum(n) OVER (PARTITION BY run_id, stream) AS total FROM buckets),
largest AS (SELECT run_id, stream, max(to_ns) AS max_ns
            FROM 't1/histograms-*.parquet' WHERE scope = 'flow_max' AND metric = 'total' GROUP BY ALL)
SELECT run_id, stream, any_value(total) AS datagrams, least(min(to_ns), any_value(max_ns)) AS p99_ns
FROM ranked JOIN largest USING (run_id, stream)
WHERE total >= 1000 AND upto >= total - total // 100
GROUP BY ALL ORDER BY p99_ns DESC;

-- name: slowest
-- Which datagram took longest, and where was it?
SELECT run_id, stream, seq, total_ns, sender_queue_ns, shaper_ns, wire_ns, receiver_ns
FROM journeys WHERE outcome = 1 AND total_ns IS NOT NULL ORDER BY total_ns DESC, seq LIMIT 1;

-- name: hop
-- On which device was the longest wait?
SELECT slowest_ifindex AS ifindex, slowest_hop_ns AS span_ns
FROM journeys WHERE outcome = 1 AND complete ORDER BY span_ns DESC LIMIT 1;

-- name: waits
-- How long did the flows' threads wait, runnable without a CPU (1) and on a
-- full send buffer (2)?
SELECT kind, count(*) AS waits, sum(to_ns - from_ns)::BIGINT AS total_ns, max(to_ns - from_ns) AS max_ns
FROM 't1/waits-*.parquet' GROUP BY ALL ORDER BY ALL;

-- name: complete
-- Of how many is everything known?
SELECT count(*) FILTER (complete) AS complete, count(*) FILTER (NOT complete) AS partial
FROM journeys WHERE outcome = 1;

-- name: selected
-- What is the p99 of the datagrams that spent more than 100 us in the shaper?
-- (observer report t1 --component 'shaper > 100us')
WITH ordered AS (
  SELECT total_ns, row_number() OVER (ORDER BY total_ns) AS rank, count(*) OVER () AS n
  FROM journeys WHERE outcome = 1 AND shaper_ns > 100000 AND total_ns IS NOT NULL)
SELECT any_value(n) AS datagrams, least(min(bucket(total_ns)), (SELECT max(total_ns) FROM ordered)) AS p99_ns
FROM ordered WHERE rank >= n - n // 100;
