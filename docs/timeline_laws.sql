-- What must hold of every timeline that 'llamatap export --to perfetto' writes. Run it in Perfetto's trace_processor:
--
--   trace_processor -q timeline_laws.sql run.pftrace
--
-- Each row of the result is a violation: its law, and the slice or track that breaks it. No row: the timeline is sound.

-- Every slice that began has ended.
SELECT 'a slice has no end' AS law, s.name AS what, s.ts AS at, s.dur AS value
FROM slice s WHERE s.dur < 0

UNION ALL
-- A slice lies within the one that contains it.
SELECT 'a slice reaches beyond its parent', s.name, s.ts, s.ts + s.dur - p.ts - p.dur
FROM slice s JOIN slice p ON s.parent_id = p.id
WHERE s.ts < p.ts OR s.ts + s.dur > p.ts + p.dur

UNION ALL
-- Time of the parts + gaps = time of the whole, and no gap is negative: parts do not overlap.
SELECT 'parts take longer than the whole', MIN(p.name), MIN(p.ts), SUM(s.dur) - MIN(p.dur)
FROM slice s JOIN slice p ON s.parent_id = p.id
GROUP BY s.parent_id
HAVING SUM(s.dur) > MIN(p.dur)

UNION ALL
-- A graph is in nothing; layers, components and ops are in a graph.
SELECT 'a graph is inside of something', s.name, s.ts, s.depth
FROM slice s WHERE s.category = 'graph' AND s.depth <> 0
UNION ALL
SELECT 'a part is in no graph', s.name, s.ts, s.depth
FROM slice s WHERE s.category IN ('layer', 'component', 'op') AND s.depth = 0

UNION ALL
-- A layer has ended before a component begins that belongs to none, such as the output after the last layer.
SELECT 'a component of no layer is in a layer', s.name, s.ts, p.ts + p.dur - s.ts
FROM slice s JOIN slice p ON s.parent_id = p.id
WHERE s.category = 'component' AND p.category = 'layer' AND EXTRACT_ARG(s.arg_set_id, 'debug.layer') IS NULL

UNION ALL
-- FLOPs of the parts = FLOPs of the graph, where all of its parts are in the timeline with their FLOPs.
SELECT 'parts have other FLOPs than their graph', MIN(g.name), MIN(g.ts),
       SUM(EXTRACT_ARG(s.arg_set_id, 'debug.flops')) - MIN(EXTRACT_ARG(g.arg_set_id, 'debug.flops'))
FROM slice s JOIN slice g
  ON s.track_id = g.track_id AND g.category = 'graph' AND s.ts >= g.ts AND s.ts + s.dur <= g.ts + g.dur
 AND s.category IN ('component', 'op') AND NOT EXISTS (SELECT 1 FROM slice c WHERE c.parent_id = s.id)
GROUP BY g.id
HAVING COUNT(EXTRACT_ARG(s.arg_set_id, 'debug.flops')) = COUNT(*)
   AND MIN(EXTRACT_ARG(g.arg_set_id, 'debug.flops')) IS NOT NULL
   AND SUM(EXTRACT_ARG(s.arg_set_id, 'debug.flops')) <> MIN(EXTRACT_ARG(g.arg_set_id, 'debug.flops'))

UNION ALL
-- A page fault that belongs to a graph happened after the graph began.
SELECT 'a page fault precedes its graph', f.name, f.ts, f.ts - g.ts
FROM flow w JOIN slice g ON w.slice_out = g.id JOIN slice f ON w.slice_in = f.id
WHERE g.category = 'graph' AND f.category = 'fault' AND f.ts < g.ts

UNION ALL
-- A page fault waited while its block request was in progress.
SELECT 'a page fault waits for a request at another time', f.name, f.ts, q.ts - f.ts
FROM flow w JOIN slice f ON f.id IN (w.slice_out, w.slice_in) JOIN slice q ON q.id IN (w.slice_out, w.slice_in)
WHERE f.category = 'fault' AND q.category = 'request' AND (q.ts > f.ts + f.dur OR f.ts > q.ts + q.dur);
