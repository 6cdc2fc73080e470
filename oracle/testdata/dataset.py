"""Compares two recordings of the data set, and computes characterization.parquet of the first again from the traces.

Bytes are followed in the pieces that accesses cut buffers into; see docs/DATASET.md for the definitions."""
import glob
import json
import re
import sys

import duckdb
import numpy as np
import pyarrow.parquet as pq

first, second = sys.argv[1:3]
name = "dataset/characterization.parquet"
table, again = pq.read_table(f"{first}/{name}"), pq.read_table(f"{second}/{name}")
schema = json.load(open(f"{first}/dataset/schema.json"))["tables"]["characterization.parquet"]
varies = table.schema.metadata[b"llamatap_varies"].decode().split(",")
assert [c["name"] for c in schema] == table.column_names and [c["name"] for c in schema if "varies" in c] == varies
assert {c["varies"] for c in schema if "varies" in c} == {"time"}
exact = [c for c in table.column_names if c not in varies]
assert table.num_rows > 100 and len(exact) > 30
for column in exact:
    assert table[column].combine_chunks().equals(again[column].combine_chunks()), column


def pieces(row):
    n = max(row.pieces, 1)
    for i in range(n):
        start = row.offset + i * (row.stride if n > 1 else 0)
        yield start, start + row.size // n


def quantile(values, weights, p):
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    return int(values[order][np.searchsorted(sums, np.ceil(p * sums[-1]))])


def meter(trace, regions):
    """Metrics of weights and caches by type."""
    cuts = {}
    for row in trace.itertuples():
        for start, end in pieces(row):
            cuts.setdefault(row.buffer_id, set()).update((start, end))
    for g in regions.itertuples():
        if g.region_type != "activation":
            cuts.setdefault(g.buffer_id, set()).update((g.offset, g.offset + g.size_bytes))
    base, size, points = {}, [], {}
    for b, at in cuts.items():
        points[b] = np.array(sorted(at), dtype=np.int64)
        base[b] = sum(map(len, size))
        size.append(np.diff(points[b], append=points[b][-1]))
    size = np.concatenate(size)
    order, since, kept = np.zeros(len(size), np.int64), np.full(len(size), -1, np.int64), np.zeros(len(size), np.int64)
    writes, seen, alone = np.zeros(len(size), np.int64), np.full(len(size), -1, np.int64), {}
    def span(b, start, end):
        return slice(base[b] + np.searchsorted(points[b], start), base[b] + np.searchsorted(points[b], end))
    owner = np.zeros(len(size), dtype="U16")
    for g in regions.itertuples():
        if g.region_type == "weight" and g.buffer_id in base:
            at = span(g.buffer_id, g.offset, g.offset + g.size_bytes)
            since[at], writes[at] = 0, 1
    result = {k: dict(kept=[], weights=[], reuse=[], reuse_weights=[], sets={}) for k in ("weight", "kv_cache")}
    touched = set()
    for number, row in enumerate(trace.itertuples(), 1):
        f = result.get(row.region_type)
        row_pieces = [np.arange(s.start, s.stop) for s in (span(row.buffer_id, *p) for p in pieces(row))]
        at = np.concatenate(row_pieces)
        if f is not None:
            touched.add(row.region_id)
            owner[at] = row.region_type
            old = at[order[at] > 0]
            if len(row_pieces) == 1:
                by = np.argsort(order)
                after = size.sum() - np.cumsum(size[by])
                sorted_order = order[by]
                f["reuse"].append(after[np.searchsorted(sorted_order, order[old], side="right") - 1])
                f["reuse_weights"].append(size[old])
            f["sets"][row.execution] = f["sets"].get(row.execution, 0) + int(size[at[seen[at] != row.execution]].sum())
            seen[at] = row.execution
            if row.op == "write":
                old = at[writes[at] > 0]
                f["kept"].append(kept[old])
                f["weights"].append(size[old])
                writes[at] += 1
                since[at], kept[at] = row.execution, 0
            else:
                mine = at[writes[at] > 0]
                kept[mine] = row.execution - since[mine]
        order[at] = number
    for g in regions.itertuples():  # of a weight of which a row is read, all was loaded
        if g.region_type == "weight" and g.region_id in touched:
            owner[span(g.buffer_id, g.offset, g.offset + g.size_bytes)] = "weight"
    for kind, f in result.items():
        mine = (owner == kind) & (writes > 0)
        values, weights = np.concatenate(f["kept"] + [kept[mine]]), np.concatenate(f["weights"] + [size[mine]])
        reuse, reuse_weights = np.concatenate(f["reuse"] or [[]]), np.concatenate(f["reuse_weights"] or [[]])
        yield kind, dict(retention_bytes=int(weights.sum()), **{
            f"retention_p{p}_executions": quantile(values, weights, p / 100) if len(values) else None for p in (50, 99)}, **{
            f"reuse_p{p}_bytes": quantile(reuse, reuse_weights, p / 100) if len(reuse) else None for p in (50, 99)},
            write_once_ratio=float(size[mine & (writes == 1)].sum() / size[mine].sum()) if mine.any() else None,
            working_set_execution_max_bytes=max(f["sets"].values()),
            working_set_execution_mean_bytes=sum(f["sets"].values()) / trace.execution.max())


rows = {(r["run_id"], r["phase"], r["region_type"]): r for r in table.to_pylist()}
runs = {path.split("/")[-2]: path for path in glob.glob(f"{first}/results/**/trace.parquet", recursive=True)}
assert {k[0] for k in rows} == {json.load(open(p.replace("trace.parquet", "metadata.json")))["run_id"] for p in runs.values()}
compared = 0
for run, path in runs.items():
    run = json.load(open(path.replace("trace.parquet", "metadata.json")))["run_id"]
    regions = duckdb.sql(f"SELECT region_id, region_type, buffer_id::BIGINT AS buffer_id, \"offset\"::BIGINT AS \"offset\", "
                         f"size_bytes::BIGINT AS size_bytes FROM '{path.replace('trace', 'region_map')}' "
                         "WHERE region_type IN ('weight', 'kv_cache') AND buffer_id IS NOT NULL AND \"offset\" IS NOT NULL").df()
    for phase, only in (("all", "true"), ("prefill", "step = 'prefill'"), ("decode", "step = 'decode'")):
        duckdb.sql(f"""CREATE OR REPLACE TABLE t AS SELECT row_number() OVER () AS n, * FROM (SELECT * FROM '{path}'
            WHERE collector = 'graph' AND graph_seq IS NOT NULL AND phase NOT IN ('setup', 'weight_load') AND {only})""")
        sums = duckdb.sql("""SELECT region_type, count(*) FILTER (op = 'read' AND flags & 2 = 0) AS reads,
            count(*) FILTER (op = 'write' AND flags & 2 = 0) AS writes,
            coalesce(sum(size) FILTER (op = 'read' AND flags & 2 = 0), 0)::BIGINT AS bytes_read,
            coalesce(sum(size) FILTER (op = 'write' AND flags & 2 = 0), 0)::BIGINT AS bytes_written,
            coalesce(sum(size) FILTER (flags & 2 > 0), 0)::BIGINT AS bytes_padded,
            (SELECT count(DISTINCT token_index) FROM t) AS tokens, (SELECT count(DISTINCT graph_seq) FROM t) AS executions
            FROM t GROUP BY ALL""").df().to_dict("records")
        for want in sums:
            got = rows[run, phase, want["region_type"]]
            for column, value in want.items():
                assert got[column] == value, (run, phase, column, got[column], value)
            for column, a, b in (("read_write_ratio", "bytes_read", "bytes_written"),
                                 ("bytes_read_per_token", "bytes_read", "tokens"),
                                 ("bytes_written_per_token", "bytes_written", "tokens")):
                assert got[column] == (want[a] / want[b] if want[b] else None), (run, phase, column)
            compared += 1
        trace = duckdb.sql("""SELECT op, region_type, region_id, buffer_id::BIGINT AS buffer_id, "offset"::BIGINT AS "offset",
            size::BIGINT AS size, coalesce(pieces, 1)::BIGINT AS pieces, coalesce(stride, 0)::BIGINT AS stride,
            dense_rank() OVER (ORDER BY graph_seq) AS execution, epoch_ns(ts_ns) AS ns FROM t
            WHERE flags & 2 = 0 AND size IS NOT NULL AND flags & 16 = 0 ORDER BY n""").df()
        if trace.empty:
            continue
        for kind, want in meter(trace, regions):
            got = rows[run, phase, kind]
            for column, value in want.items():
                near = 1 / 64 if column.startswith("reuse") else 1e-12
                assert (got[column] is None) == (value is None), (run, phase, kind, column, got[column], value)
                assert value is None or abs(got[column] - value) <= near * value, (run, phase, kind, column, got[column], value)
            if kind == "weight":
                assert got["censored_share"] == 1 and got["km_p99_executions"] is None, got
            compared += 1
        if phase == "all":  # the same in nanoseconds
            for kind, want in meter(trace.assign(execution=trace.ns - trace.ns.min()), regions):
                for p in ("p50", "p99"):
                    got, value = rows[run, phase, kind][f"retention_{p}_s"] * 1e9, want[f"retention_{p}_executions"]
                    assert abs(got - value) <= value / 64 + 1, (run, kind, p, got, value)

card = open(f"{first}/dataset/README.md").read()
lines = 0
for phase, kind, *texts in re.findall(r"^\| (all|prefill|decode) \| (\w+) \| (.*) \| (.*) \| (.*) \| (.*) \| (.*) \| (.*) \|$", card, re.M):
    lines += 1
    want = duckdb.sql(f"""SELECT count(*), median(read_write_ratio), median(bytes_read_per_token), median(write_once_ratio),
        median(censored_share), median(retention_p99_executions) FROM '{first}/{name}'
        WHERE phase = '{phase}' AND region_type = '{kind}'""").fetchone()
    for text, value in zip(texts, want):
        assert (text == "–") == (value is None) and (value is None or abs(float(text) - value) <= 1e-3 * abs(value)), (phase, kind, text, value)
assert lines == len({k[1:] for k in rows}) and f"{len(runs)} runs, {len(rows)} rows" in card
print(compared, "rows computed again,", len(exact), "columns equal,", lines, "medians")
