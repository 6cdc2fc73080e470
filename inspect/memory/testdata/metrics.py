"""Works the metrics of a trace out from their definitions, byte by byte, with numpy and pandas. Prints JSON."""
import json
import sys

import numpy as np
import pandas as pd

trace = pd.concat([pd.read_parquet(name) for name in sys.argv[2:]], ignore_index=True)
trace[["offset", "size"]] = trace[["offset", "size"]].astype("int64")
if trace.ts_ns.dtype.kind == "M":
    trace["ts_ns"] = trace.ts_ns.astype("int64")
window = int(float(sys.argv[1]) * 1e9)
regions = sorted(trace.region_id.unique())
extent = trace.assign(end=trace.offset + trace["size"]).groupby("region_id").end.max()
base, total = {}, 0
for r in regions:
    base[r] = total
    total += int(extent[r])
kind_of = trace.groupby("region_id").region_type.first()
kinds = np.empty(total, dtype=object)
for r in regions:
    kinds[base[r]:base[r] + int(extent[r])] = kind_of[r]

begin, finish = int(trace.ts_ns.iloc[0]), int(trace.ts_ns.max())
touched = np.full(total, -1, np.int64)  # time
order = np.zeros(total, np.int64)  # number of the touch, 0 = none
written = np.full(total, -1, np.int64)
kept = np.zeros(total, np.int64)  # of the last write
writes = np.zeros(total, np.int64)
born = np.full(total, -1, np.int64)
names = sorted(kind_of.unique())
found = {k: dict(kept=[], ended=[], iai=[], reuse=[], live=0, written=0, once=0, sets={}) for k in names}


def die(at, ended):
    """Ends the lives of bytes."""
    for k in names:
        mine = at[(kinds[at] == k) & (writes[at] > 0)]
        f = found[k]
        f["kept"].append(kept[mine])
        f["ended"].append(np.full(len(mine), ended))
        f["written"] += len(mine)
        f["once"] += int((writes[mine] == 1).sum())


for number, row in enumerate(trace.itertuples(), 1):
    at = np.arange(base[row.region_id] + row.offset, base[row.region_id] + row.offset + row.size)
    f = found[row.region_type]
    now = row.ts_ns
    if row.op == "free":
        live = at[born[at] >= 0]
        die(live, True)
        for k in names:
            found[k]["live"] += int((now - born[live[kinds[live] == k]]).sum())
        touched[at], order[at], written[at], writes[at], born[at], kept[at] = -1, 0, -1, 0, -1, 0
        continue
    again = at[order[at] > 0]
    f["iai"].append(now - touched[again])
    sorted_order = np.sort(order)
    f["reuse"].append(total - np.searchsorted(sorted_order, order[again], side="right"))
    k = (now - begin) // window
    fresh = at[(order[at] == 0) | ((touched[at] - begin) // window != k)]
    f["sets"][k] = f["sets"].get(k, 0) + len(fresh)
    born[at] = np.where(born[at] < 0, now, born[at])
    if row.op == "write":
        old = at[writes[at] > 0]
        f["kept"].append(kept[old])
        f["ended"].append(np.full(len(old), True))
        writes[at] += 1
        written[at], kept[at] = now, 0
    else:
        mine = at[writes[at] > 0]
        kept[mine] = now - written[mine]
    touched[at], order[at] = now, number

alive = np.flatnonzero(born >= 0)
for k in names:
    found[k]["live"] += int((finish - born[alive[kinds[alive] == k]]).sum())
die(alive, False)


def kaplan_meier(durations, ended, p):
    left = 1.0
    for t in np.unique(durations[ended]):
        left *= 1 - ((durations == t) & ended).sum() / (durations >= t).sum()
        if left <= 1 - p + 1e-12:
            return float(t) / 1e9
    return None


def quantiles(values):
    return [float(v) for v in np.quantile(values, [0.5, 0.9, 0.99], method="inverted_cdf")] if len(values) else None


result = {}
windows = (finish - begin) // window + 1
for k in names:
    f, mine = found[k], trace[(trace.region_type == k) & trace.op.isin(["read", "write"])]
    durations, ended = np.concatenate(f["kept"] or [[]]).astype(np.int64), np.concatenate(f["ended"] or [[]]).astype(bool)
    lines = jumps = 0
    for _, g in mine.groupby("region_id"):
        lines += int(((g["size"] + 63) // 64).sum())
        jumps += int((g.offset.values[1:] != (g.offset + g["size"]).values[:-1]).sum())
    bytes_of = mine.groupby("op")["size"].sum()
    result[k] = dict(
        bytes_read=int(bytes_of.get("read", 0)), bytes_written=int(bytes_of.get("write", 0)), reads=int((mine.op == "read").sum()), writes=int((mine.op == "write").sum()),
        write_once=f["once"] / f["written"] if f["written"] else None, read_freq=int(bytes_of.get("read", 0)) / (f["live"] / 1e9) if f["live"] else None,
        retention=[v / 1e9 for v in quantiles(durations)] if len(durations) else None, retention_bytes=len(durations),
        censored=float((~ended).mean()) if len(durations) else None,
        km=[[kaplan_meier(durations, ended, min(p + d, 1)) for d in (-0.01, 0.01)] for p in (0.5, 0.9, 0.99)],
        iai=quantiles(np.concatenate(f["iai"] or [[]])), iai_mean=float(np.concatenate(f["iai"] or [[]]).mean()),
        reuse=quantiles(np.concatenate(f["reuse"] or [[]])), reuse_mean=float(np.concatenate(f["reuse"] or [[]]).mean()),
        set_mean=sum(f["sets"].values()) / windows, set_max=max(f["sets"].values()), locality=1 - jumps / (lines - 1),
    )
json.dump(result, sys.stdout)
