"""Computes what a report of llamatap host analyze --json says anew, with pandas, NumPy and SciPy: compare.py BLOCK SYSTEM REPORT, of
several recordings one after the other."""

import json
import sys

import numpy as np
import pandas as pd
from scipy import stats

METRICS = ["off_cpu_ms", "page_faults_per_s", "cpu_pressure", "io_pressure", "memory_pressure"]


def read(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def same(what, got, want, by=1e-9):
    if (got is None) != (want is None) or got is not None and not np.isclose(got, want, rtol=by, atol=1e-12):
        sys.exit(f"{what}: {got}, want {want}")


def upper(counts, percent):
    """The upper bound of the slot up to which there are percent of the requests; counts is a Series by slot."""
    counts = counts.sort_index()
    reached = counts.cumsum() >= counts.sum() * percent / 100
    return 2 ** int(counts.index[reached][0]) - 1


def histogram(snapshots):
    rows = [
        (s["timestamp"], d["device_id"], b["slot"], b["count"])
        for s in snapshots
        for d in s["latency_histogram"]
        for b in d["buckets"]
    ]
    return pd.DataFrame(rows, columns=["time", "device", "slot", "count"])


def check_device(report, rows, snapshots, recorded):
    counts = rows.groupby("slot")["count"].sum()
    name = report["device_name"]
    same(name + " requests", report["requests"], counts.sum())
    same(name + " per s", report["requests_per_s"], counts.sum() / recorded)
    middle = np.where(counts.index > 0, (2.0 ** (counts.index - 1) + 2.0**counts.index - 1) / 2, 0)
    same(name + " mean", report["latency_mean_us"], np.average(middle, weights=counts))
    for p in report["latency_percentiles"]:
        same(f"{name} p{p['percent']}", p["at_most_us"], upper(counts, p["percent"]))
    if report["device_id"] < 0:
        return
    depths = []
    for s in snapshots:
        listed = {d["device_id"] for d in s["latency_histogram"]}
        depth = {d["device_id"]: d["count"] for d in s["inflight"]}
        if report["device_id"] in listed | set(depth):
            depths.append(depth.get(report["device_id"], 0))
    same(name + " queue", report["queue"]["mean"], np.mean(depths))
    same(name + " queue max", report["queue"]["max"], np.max(depths))


def system_frame(snapshots):
    rows = []
    for s in snapshots:
        some = {k: v["some"]["avg10"] for k, v in s["pressure"].items()}
        off = pd.Series(s["off_cpu_ns"], dtype=float).sum() / 1e6
        faults = pd.Series(s["page_faults"], dtype=float).sum() / s["interval_s"]
        rows.append((s["timestamp"], s["interval_s"], off, faults, some["cpu"], some["io"], some["memory"]))
    return pd.DataFrame(rows, columns=["time", "interval"] + METRICS).sort_values("time")


def align(latency, system, shift):
    i = j = 0
    pairs = []
    while i < len(latency) and j < len(system):
        (time, interval), (other, length) = latency[i], system[j]
        if abs(other + shift - time) <= 0.75 * max(interval, length, 1):
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif other + shift < time:
            j += 1
        else:
            i += 1
    return pairs


def check_correlations(report, rows, system, interval, step, percent):
    times = rows.groupby("time").apply(lambda g: upper(g.groupby("slot")["count"].sum(), percent), include_groups=False)
    latency = [(t, interval) for t in times.index]
    whole = list(zip(system["time"], system["interval"]))
    for row in report:
        what = f"{row['device_name']} {row['metric']}"

        def columns(lag):
            pairs = align(latency, whole, lag * step)
            return times.to_numpy(float)[[i for i, _ in pairs]], system[row["metric"]].to_numpy()[[j for _, j in pairs]]

        x, y = columns(0)
        same(what + " n", row["n"], len(x))
        if len(set(y)) < 2 or len(set(x)) < 2:
            if "constant" not in row["undefined"]:
                sys.exit(f"{what}: {row}")
            continue
        r, p = stats.pearsonr(x, y)
        same(what + " r", row["r"], r)
        same(what + " p", row["p"], p, 1e-6)
        remembers = [np.sum((v[1:] - v.mean()) * (v[:-1] - v.mean())) / np.sum((v - v.mean()) ** 2) for v in (x, y)]
        both = remembers[0] * remembers[1]
        effective = min(len(x), max(0, len(x) * (1 - both) / (1 + both)))
        same(what + " n_effective", row["n_effective"], effective)
        t = abs(r) * np.sqrt((effective - 2) / (1 - r * r))
        same(what + " p_effective", row["p_effective"], 2 * stats.t.sf(t, effective - 2), 1e-6)
        best, tried = None, 0
        for lag in row.get("lags", []):
            x, y = columns(lag["lag"])
            if len(set(x)) < 2 or len(set(y)) < 2 or len(x) < 4:
                same(what + " r of a constant", lag.get("r"), None)
                continue
            r, p = stats.pearsonr(x, y)
            same(f"{what} r at {lag['lag']}", lag["r"], r)
            same(f"{what} p at {lag['lag']}", lag["p"], p, 1e-6)
            tried += 1
            if best is None or p < best[0]:
                best = p, lag["lag"]
        if best:
            same(what + " best lag", row["best_lag"]["lag"], best[1])
            same(what + " best p", row["best_lag"]["p"], -np.expm1(tried * np.log1p(-best[0])), 1e-6)


def main(block_path, system_path, report_path):
    block, system, report = read(block_path), system_frame(read(system_path)), json.load(open(report_path, encoding="utf-8"))
    rows, interval = histogram(block), block[0]["interval_s"]
    recorded = interval * len(block)
    for device in report["devices"]:
        check_device(device, rows[rows["device"] == device["device_id"]], block, recorded)
    check_device(report["all"], rows, block, recorded)
    importance = report["importance"]
    same("step", importance["step_s"], max(np.median(np.diff(sorted({s["timestamp"] for s in block}))), np.median(np.diff(system["time"]))), 1e-2)
    for device in {row["device_id"] for row in importance["rows"]}:
        of = [row for row in importance["rows"] if row["device_id"] == device]
        strengths = [abs(row["r"]) if "r" in row else -1 for row in of]
        if strengths != sorted(strengths, reverse=True):
            sys.exit(f"not by |r|: {strengths}")
        mine = rows if device < 0 else rows[rows["device"] == device]
        check_correlations(of, mine, system, interval, importance["step_s"], importance["target_percentile"])
    p = [row["p"] for row in importance["rows"] if "p" in row]
    for row, q in zip([row for row in importance["rows"] if "p" in row], stats.false_discovery_control(p)):
        same(row["metric"] + " q", row["q"], q)
    off = pd.DataFrame([s["off_cpu_ns"] for s in read(system_path)]).sum().sort_values(ascending=False) / 1e6
    for row, (id, value) in zip(report["off_cpu"]["top"], off.items()):
        same(f"off-CPU of {row['id']}", row["value"], value)
        if row["id"] != id:
            sys.exit(f"off-CPU: {row['id']}, want {id}")
    print(f"{len(report['devices'])} devices, {len(p)} correlations")


for at in range(1, len(sys.argv), 3):
    main(*sys.argv[at : at + 3])
