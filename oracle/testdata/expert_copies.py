"""Replays the copies of experts that a ledger shows. Arguments: a run's directory, its routing log as Parquet, the
bytes of an expert's matrix, how many experts were copied. Prints what does not hold."""
import glob
import sys

import pyarrow as pa
import pyarrow.parquet as pq

directory, routing, matrix, misses = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
COPIED = 128

regions = {r["region_id"]: r for r in pq.read_table(directory + "/region_map.parquet").to_pylist()}
everything = pa.concat_tables(pq.read_table(p) for p in sorted(glob.glob(directory + "/trace*.parquet"))).to_pylist()
rows = [r for r in everything if r["graph_seq"] is not None]

chosen = {}
for r in pq.read_table(routing).to_pylist():
    chosen.setdefault((r["exec"], r["layer"]), set()).add(r["expert"])


def cache(row):
    return regions[row["region_id"]]["name"].startswith("moe_cache.") if row["region_id"] is not None else False


def slots(row):
    """The slots of the cache's tensor that a row touches."""
    first = row["offset"] - regions[row["region_id"]]["offset"]
    assert first % matrix == 0 and row["size"] % matrix == 0, row
    return range(first // matrix, (first + row["size"]) // matrix)


copies = [r for r in rows if r["flags"] == COPIED]
pairs = [(a, b) for a, b in zip(copies[::2], copies[1::2]) if cache(b)]
for a, b in pairs:
    weight = regions[a["region_id"]]
    for key, want in (("op", ("read", "write")), ("size", (a["size"], a["size"])), ("time_source", ("copy", "copy"))):
        if (a[key], b[key]) != want:
            print("a copy's", key, a[key], b[key])
    if weight["tensor"].split(".")[1] != str(b["layer"]) or a["device"] != "CPU" or b["device"] == "CPU":
        print("copied from", weight["tensor"], a["device"], "to", b["layer"], b["device"])
if sum(b["size"] for _, b in pairs) != misses * 3 * matrix:
    print(sum(b["size"] for _, b in pairs), "bytes are copied, and llama.cpp counts", misses, "experts")

reads = [r for r in rows if r["ggml_op"] == "MUL_MAT_ID" and r["operand"] == 0 and cache(r)]
held = {}  # by region and slot: tensor and expert
checked = 0
for graph, layer in sorted({(r["graph_seq"], r["layer"]) for r in reads}):
    for a, b in pairs:
        if (b["graph_seq"], b["layer"]) == (graph, layer):
            weight = regions[a["region_id"]]
            first = (a["offset"] - weight["offset"]) // matrix
            for i, slot in enumerate(slots(b)):
                held[b["region_id"], slot] = weight["tensor"], first + i
    seen = {}
    for r in reads:
        if (r["graph_seq"], r["layer"]) == (graph, layer):
            for slot in slots(r):
                tensor, expert = held.get((r["region_id"], slot), ("nothing", -1))
                seen.setdefault(tensor, set()).add(expert)
    checked += 1
    if len(seen) != 3 or any(t.split(".")[1:2] != [str(layer)] or e != chosen[graph, layer] for t, e in seen.items()):
        print("graph", graph, "layer", layer, "reads", seen, "and chose", chosen[graph, layer])
if checked < 20:
    print("only", checked, "layers of graphs read a cache")

for r in everything:
    if r["flags"] & 8 and cache(r):
        print("nothing is loaded into a cache:", regions[r["region_id"]]["name"])
