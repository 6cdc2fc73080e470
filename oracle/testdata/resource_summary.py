"""Recomputes what `llamatap resource summary RUN --json` says from the events of RUN with DuckDB, and prints every figure that differs.

Bytes of caches are compared with the lives of their blocks and the ledger too, where RUN has them.

usage: resource_summary.py RUN < summary.json
"""
import json, os, sys
import duckdb

said = json.load(sys.stdin)
db = duckdb.connect()
columns = {
    "event": "VARCHAR", "resource_id": "VARCHAR", "ctx": "INTEGER", "exec": "BIGINT", "mono_ns": "BIGINT", "phase": "VARCHAR", "tokens": "BIGINT", "duration_ns": "BIGINT",
    "looking_ns": "BIGINT", "looks": "BIGINT", "operation": "VARCHAR", "name": "VARCHAR", "component_type": "VARCHAR", "layer_id": "INTEGER",
    "node_count": "BIGINT", "time_source": "VARCHAR", "flops": "BIGINT", "flops_unmasked": "BIGINT", "ops_without_mask": "BIGINT", "bytes_read": "BIGINT", "bytes_written": "BIGINT",
    "ops_without_flops": "BIGINT", "ops_without_bytes": "BIGINT", "token_index": "BIGINT", "token_id": "INTEGER", "seq_id": "INTEGER",
    "seq_ids": "INTEGER[]", "token_ids": "INTEGER[]", "pos": "INTEGER", "latency_ns": "BIGINT", "cells": "BIGINT", "key_bytes": "BIGINT", "value_bytes": "BIGINT", "key_bytes_written": "BIGINT", "value_bytes_written": "BIGINT",
    "cache": "VARCHAR", "cache_type": "VARCHAR", "cache_operation": "VARCHAR", "allocation_bytes": "BIGINT", "live_bytes": "BIGINT",
    "prefill_tokens": "BIGINT", "decode_tokens": "BIGINT", "gpu_index": "INTEGER", "gpu_name": "VARCHAR", "gpu_utilization_percent": "DOUBLE", "memory_utilization_percent": "DOUBLE",
    "gpu_memory_used_bytes": "BIGINT", "gpu_energy_j": "DOUBLE", "window_ns": "BIGINT", "domain": "VARCHAR", "energy_j": "DOUBLE", "kind": "VARCHAR", "cause": "VARCHAR", "count": "BIGINT",
}
db.execute("create table e as select row_number() over () as line, * from read_json(?, format = 'newline_delimited', columns = %s)" % columns, [os.path.join(sys.argv[1], "resource.jsonl")])
db.execute("create view graphs as select * from e where event = 'graph_execution'")
# Nodes that were timed by themselves or together; a whole graph's time is its graph_execution's.
db.execute("""create view nodes as
    select *, case when time_source = 'range' and (node_count > 1 or operation = 'range') then '(several)' else operation end as op,
        case when regexp_matches(name, '^node_[0-9]+$') then 'node' else regexp_replace(coalesce(name, ''), '^(.+)-[0-9]+$', '\\1') end as bare
    from e where event = 'compute_execution' and time_source not in ('graph', 'synchronize')""")

differences = []


def same(what, got, want):
    if isinstance(got, float) and isinstance(want, (int, float)):
        if abs(got - want) <= 1e-9 * max(abs(got), abs(want)):
            return
    elif got == want:
        return
    differences.append(f"{what}: the summary says {got!r}, the events {want!r}")


def rows(sql, *args):
    cursor = db.execute(sql, args)
    names = [d[0] for d in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def one(sql, *args):
    return rows(sql, *args)[0]


def by(key, table):
    return {tuple(row.get(k) for k in key) if isinstance(key, tuple) else row[key]: row for row in table}


COST = """count(*) as events, sum(node_count) as nodes, sum(duration_ns) as ns, count(duration_ns) as timed,
    sum(flops) as flops, count(flops) as counted, coalesce(sum(ops_without_mask), 0) as no_mask,
    case when coalesce(sum(ops_without_mask), 0) = 0 then sum(coalesce(flops_unmasked, flops)) end as flops_unmasked, coalesce(sum(ops_without_flops), 0) as no_flops,
    case when count(bytes_read) > 0 then sum(bytes_read) end as bytes_read, count(bytes_read) as sized,
    case when count(bytes_written) > 0 then sum(bytes_written) end as bytes_written, coalesce(sum(ops_without_bytes), 0) as no_bytes"""
total = one("select coalesce(sum(duration_ns), 0) as ns, count(*) as graphs, coalesce(sum(looking_ns * looks), 0) as looking from graphs where phase != 'setup'")


def figures(what, got, want, share=True):
    for key in ("events", "nodes"):
        same(f"{what} {key}", got[key], want[key])
    for key in ("ns", "flops", "flops_unmasked", "bytes_read", "bytes_written"):
        same(f"{what} {key}", got.get(key), None if want[key] is None else int(want[key]))
    same(f"{what} events_without_time", got.get("events_without_time", 0), want["events"] - want["timed"])
    same(f"{what} ops_without_flops", got.get("ops_without_flops", 0), want["no_flops"])
    same(f"{what} ops_without_bytes", got.get("ops_without_bytes", 0), want["no_bytes"])
    timed = want["timed"] == want["events"] and want["ns"]
    same(f"{what} ops_without_mask", got.get("ops_without_mask", 0), want["no_mask"])
    flops = timed and want["counted"] == want["events"] and not want["no_flops"] and not want["no_mask"]
    moved = timed and want["sized"] == want["events"] and not want["no_bytes"]
    same(f"{what} gflops_per_s", got.get("gflops_per_s"), float(want["flops_unmasked"]) / float(want["ns"]) if flops else None)
    same(f"{what} gb_per_s", got.get("gb_per_s"), float(want["bytes_read"] + want["bytes_written"]) / float(want["ns"]) if moved else None)
    if share:
        same(f"{what} share", got.get("share"), float(want["ns"]) / float(total["ns"]) if want["ns"] is not None and total["ns"] else None)


def table(what, got, want, key, share=True):
    got, want = by(key, got), by(key, want)
    same(f"{what}: rows", sorted(map(str, got)), sorted(map(str, want)))
    for name in got.keys() & want.keys():
        figures(f"{what} {name}", got[name], want[name], share)


# A resource_id names one event; a deallocation has that of its allocation. A cache is on the device that it was allocated on.
same("ids of several events", rows("select resource_id, count(*) as n from e where resource_id is not null and event != 'memory_deallocation' group by 1 having n > 1 limit 3"), [])
same("deallocations of nothing", rows("""select resource_id from e where event = 'memory_deallocation' and allocation_bytes >= 1048576
    and resource_id not in (select resource_id from e where event = 'memory_allocation')"""), [])
same("ids of unknown devices", rows("select resource_id from e where resource_id like 'unknown%' limit 3"), [])

same("graphs", said["graphs"], total["graphs"])
same("graph_ns", said["graph_ns"], total["ns"])
same("looking_ns", said["looking_ns"], total["looking"])
same("covered_ns", said["covered_ns"], one("select coalesce(sum(duration_ns), 0) as ns from nodes where phase != 'setup'")["ns"])
same("lines", said["lines"], one("select count(*) as n from e")["n"])
same("events", said["events"], {r["event"]: r["n"] for r in rows("select event, count(*) as n from e group by 1")})

# Tokens by the phase of each, from the events that list them; executions by theirs.
graphs = by("phase", rows(f"select phase, {COST} from graphs group by 1"))
for phase in ("prefill", "decode"):
    if phase not in graphs:
        graphs[phase] = one(f"select '{phase}' as phase, {COST} from graphs where phase = '{phase}'") | {"nodes": 0}
tokens = {"prefill": one("select coalesce(sum(len(token_ids)), 0)::bigint as n from e where event = 'input_tokens'")["n"],
          "decode": one("select count(*) as n from e where event = 'output_token'")["n"],
          "setup": one("select coalesce(sum(tokens), 0)::bigint as n from graphs where phase = 'setup'")["n"]}
db.execute("""create view mixed as select * from graphs
    where exec in (select exec from e where event = 'input_tokens') and exec in (select exec from e where event = 'output_token')""")
mixed = one("select count(*) as n, coalesce(sum(duration_ns), 0)::bigint as ns from mixed")
for p in said["phases"]:
    what = f"phase {p['phase']}"
    want = graphs[p["phase"]]
    figures(what, p, want, p["phase"] != "setup")
    same(f"{what} graphs", p["graphs"], want["events"])
    same(f"{what} tokens", p["tokens"], tokens.get(p["phase"], 0))
    both = mixed if p["phase"] == "prefill" else {"n": 0, "ns": 0}
    same(f"{what} mixed_graphs", p["mixed_graphs"], both["n"])
    same(f"{what} mixed_ns", p["mixed_ns"], both["ns"])
    alone = one("select coalesce(sum(tokens), 0)::bigint as n, sum(duration_ns)::bigint as ns from graphs where phase = ? and exec not in (select exec from mixed)", p["phase"])
    same(f"{what} tokens_per_s", p.get("tokens_per_s"), 1e9 * alone["n"] / alone["ns"] if alone["n"] and want["timed"] == want["events"] else None)
same("phases", sorted(p["phase"] for p in said["phases"]), sorted(name for name, row in graphs.items() if row["events"] or tokens.get(name)))

table("component", said["components"], rows(f"select component_type as component, {COST} from nodes where phase != 'setup' group by 1"), "component")
table("layer", said["layers"], rows(f"select layer_id as layer, {COST} from nodes where phase != 'setup' group by 1"), "layer")
table("operation", said["ops"], rows(f"select op as operation, {COST} from nodes where phase != 'setup' group by 1"), "operation")
tops = rows(f"select operation, bare as name, {COST} from nodes where phase != 'setup' and op != '(several)' group by 1, 2")
table("tensor", said["top"], [t for t in tops if len(tops) <= 50 or (t["operation"], t["name"]) in by(("operation", "name"), said["top"])], ("operation", "name"))
for c in said["components"]:
    want = rows("select phase, sum(duration_ns) as ns from nodes where phase != 'setup' and component_type = ? group by 1", c["component"])
    same(f"component {c['component']} by phase", c["ns_by_phase"], {r["phase"]: int(r["ns"]) for r in want if r["ns"] is not None})
for l in said["layers"]:
    want = rows("select component_type as c, sum(duration_ns) as ns from nodes where phase != 'setup' and layer_id = ? group by 1", l["layer"])
    same(f"layer {l['layer']} by component", l["ns_by_component"], {r["c"]: int(r["ns"]) for r in want if r["ns"] is not None})

# Tokens. What produced a token is the execution that took the token of its sequence before it, of a prompt or generated.
db.execute("""create view fed as
    select ctx, seq_id as seq, exec, line, false as prompt from e where event = 'output_token' and seq_id is not null
    union all select ctx, unnest(seq_ids), exec, line, true from e where event = 'input_tokens'""")
db.execute("""create table outputs as
    select *, (select max(f.exec) from fed f where f.ctx = o.ctx and f.seq = o.seq_id and f.exec < o.exec) as produced_by
    from e o where o.event = 'output_token'""")
# What came before a token is a prompt's where the execution that produced it took tokens of a prompt of its sequence.
db.execute("""create table following as
    select o.*, coalesce((select bool_or(f.prompt) from fed f where f.ctx = o.ctx and f.seq = o.seq_id and f.exec = o.produced_by), false)
        and latency_ns is not null as first from outputs o""")
db.execute("""create table inside as
    select exec, sum(duration_ns) filter (component_type = 'attention')::bigint as attention_ns, sum(duration_ns) filter (component_type = 'mlp')::bigint as mlp_ns
    from nodes group by 1""")
want = rows("""
    select o.token_index, o.token_id, o.pos, o.exec, o.latency_ns, g.exec as graph_exec, g.tokens as graph_tokens, g.duration_ns as graph_ns, case when o.first then true end as first,
        case when coalesce(g.ops_without_flops, 0) = 0 then g.flops end as flops, g.bytes_read, g.bytes_written, i.attention_ns, i.mlp_ns
    from following o left join graphs g on o.latency_ns is not null and g.exec = o.produced_by left join inside i on i.exec = g.exec order by o.line""")
same("tokens: rows", len(said["tokens"]), len(want))
for got, row in zip(said["tokens"], want):
    for key, value in row.items():
        same(f"token {row['token_index']} {key}", got.get(key), value)
    if row["graph_ns"] is not None and row["graph_ns"] > row["latency_ns"]:
        differences.append(f"token {row['token_index']} was produced in {row['graph_ns']} ns, and came {row['latency_ns']} ns after the one before it")
latency = one("""select count(latency_ns) as count, sum(latency_ns)::bigint as sum, min(latency_ns) as min_ns, max(latency_ns) as max_ns,
    quantile_disc(latency_ns, 0.5) as p50, quantile_disc(latency_ns, 0.95) as p95, quantile_disc(latency_ns, 0.99) as p99
    from following where not first""")
got = said.get("latency") or {"count": 0}
same("latency count", got["count"], latency["count"])
if latency["count"]:
    same("latency mean", got["mean_ns"], latency["sum"] // latency["count"])
    for key in ("min_ns", "max_ns"):
        same(f"latency {key}", got[key], latency[key])
    for key in ("p50", "p95", "p99"):
        bound = got[f"{key}_at_most_ns"]
        if not latency[key] <= bound <= 1.032 * latency[key] + 1:
            differences.append(f"latency {key}: the summary says at most {bound}, the events {latency[key]}")

# Caches. Cells are those of the first layer that was told of; bytes are those that executions wrote, in all layers.
db.execute("create view kv as select *, first_value(layer_id) over (partition by ctx, cache_type, cache order by line) as counted from e where event = 'kv_cache_operation'")
cell = lambda op: f"coalesce(sum(cells) filter (cache_operation = '{op}' and layer_id = counted), 0)::bigint"
want = rows(f"""select ctx, cache_type, cache, count(distinct layer_id) as layers, count(*) as operations, {cell('allocate')} as cells_allocated,
    {cell('update')} as cells_updated, {cell('evict')} as cells_evicted, {cell('allocate')} - {cell('evict')} as cells_used,
    sum(key_bytes_written)::bigint as key_bytes_written, sum(value_bytes_written)::bigint as value_bytes_written from kv group by all""")
kv = by(("ctx", "cache_type", "cache"), said["kv"])
same("caches", sorted(map(str, kv)), sorted(map(str, by(("ctx", "cache_type", "cache"), want))))
for row in want:
    got = kv[row["ctx"], row["cache_type"], row["cache"]]
    for key, value in row.items():
        same(f"cache {row['ctx']} {row['cache']} {key}", got.get(key), value)
lives, trace, regions = (os.path.join(sys.argv[1], name) for name in ("kv_block_lifecycle.parquet", "trace.parquet", "region_map.parquet"))
if os.path.exists(lives):
    for kind, key in (("k", "key_bytes_written"), ("v", "value_bytes_written")):
        of = one(f"select sum(n_writes * cell_bytes)::bigint as n from '{lives}' where kv = '{kind}'")["n"]
        same(f"{key} of all caches, against the lives of blocks", sum(c.get(key, 0) for c in said["kv"]), of)
if os.path.exists(trace):
    of = one(f"""select sum(size * count)::bigint as n from '{trace}' t join '{regions}' r using (region_id)
        where t.op = 'write' and t.phase != 'setup' and r.kv = 'v'""")["n"]
    same("value_bytes_written of all caches, against the ledger", sum(c["value_bytes_written"] for c in said["kv"]), of)

# GPUs: means over samples.
want = rows("""select gpu_index, any_value(gpu_name) as gpu_name, count(*) as samples, avg(gpu_utilization_percent) as gpu_utilization_percent,
    avg(memory_utilization_percent) as memory_utilization_percent, max(gpu_memory_used_bytes) as gpu_memory_peak_bytes, sum(gpu_energy_j) as gpu_energy_j,
    sum(gpu_energy_j) / sum(window_ns) filter (gpu_energy_j is not null) * 1e9 as gpu_power_mean_w
    from e where event = 'gpu_sample' group by 1 order by 1""")
same("gpus", len(said.get("gpus", [])), len(want))
for got, row in zip(said.get("gpus", []), want):
    for key, value in row.items():
        same(f"gpu {row['gpu_index']} {key}", float(got[key]) if isinstance(value, float) else got.get(key), value)

want = rows("""select domain, sum(energy_j) as energy_j, sum(energy_j) / sum(window_ns) * 1e9 as power_mean_w
    from e where event = 'rapl_sample' group by 1 order by 1""")
same("zones", said.get("rapl", []) and [z["domain"] for z in said["rapl"]], [z["domain"] for z in want])
for got, row in zip(said.get("rapl", []), want):
    for key in ("energy_j", "power_mean_w"):
        same(f"zone {row['domain']} {key}", float(got[key]), row[key])

# Energy: that of windows, and at VERBOSE, where the end of every execution is in the file, how it is divided.
windows = """(select case event when 'gpu_sample' then 'gpu-' || gpu_index else domain end as domain, mono_ns - window_ns as first, mono_ns as last,
    coalesce(gpu_energy_j, energy_j) as joules from e where event in ('gpu_sample', 'rapl_sample') and coalesce(gpu_energy_j, energy_j) is not null)"""
want = rows(f"select domain, sum(joules) as joules, sum(last - first) as ns from {windows} group by 1 order by 1")
said_energy = said.get("energy", [])
same("devices with energy", sorted({r["domain"] for r in said_energy}), [d["domain"] for d in want])
steps = """(select d.mono_ns - g.duration_ns as first, d.mono_ns as last, case when g.prefill_tokens > 0 and g.decode_tokens > 0 then 'mixed' else g.phase end as phase, g.tokens
    from e b join e d on b.exec = d.exec and b.ctx = d.ctx join graphs g on b.exec = g.exec and b.ctx = g.ctx where b.event = 'step_begin' and d.event = 'step_end')"""
all_steps = one(f"select count(*) as n, (select count(*) from graphs) as of from {steps}")
for device in want:
    here = {r["phase"]: r for r in said_energy if r["domain"] == device["domain"] and "energy_j" in r}
    close = 1e-5 * abs(device["joules"])  # windows have six digits
    if abs(sum(r["energy_j"] for r in here.values()) - device["joules"]) > close:
        differences.append(f"{device}: its phases add up to {here}")
    same(f"{device['domain']}: time of the phases", sum(r["duration_ns"] for r in here.values()) // 10, device["ns"] // 10)
    if all_steps["n"] == 0 or all_steps["n"] != all_steps["of"]:
        continue
    parts = rows(f"""select phase, sum(joules * (least(s.last, w.last) - greatest(s.first, w.first)) / (w.last - w.first)) as joules,
        sum(least(s.last, w.last) - greatest(s.first, w.first)) as ns, (select sum(tokens) from {steps} t where t.phase = s.phase) as tokens
        from {windows} w join {steps} s on s.first < w.last and s.last > w.first where domain = ? group by 1""", device["domain"])
    same(f"{device['domain']}: phases", sorted(here), sorted([p["phase"] for p in parts] + ["outside"]))
    for p in parts:
        got = here[p["phase"]]
        if abs(got["energy_j"] - p["joules"]) > close or got["duration_ns"] != p["ns"]:
            differences.append(f"energy of {p}: the summary says {got}")
        if p["phase"] in ("prefill", "decode"):
            same(f"tokens of {p['phase']}", got["tokens"], int(p["tokens"]))
            same(f"joules per token of {p['phase']}", got["joules_per_token"], got["energy_j"] / int(p["tokens"]))

for what in differences[:40]:
    print(what)
sys.exit(bool(differences))
