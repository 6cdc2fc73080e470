"""Recomputes what `llamatap experts RUN --json` says, and prints every figure that differs.

Choices are recomputed from the router's logits, distances by a search through earlier uses, LRU caches by simulation.

usage: experts.py ROUTING.parquet LOGITS.parquet EXPERT_BYTES < experts.json
"""
import collections, json, sys
import numpy, pyarrow.parquet

said, expert_bytes = json.load(sys.stdin), int(sys.argv[3])
rows = pyarrow.parquet.read_table(sys.argv[1]).to_pylist()
logits = {}
for r in pyarrow.parquet.read_table(sys.argv[2]).to_pylist():
    logits[r["exec"], r["layer"], r["token_index"]] = numpy.array(r["values"], numpy.float64)

def same(what, got, want):
    if got != want:
        print(f"{what}: {got}, want {want}")

choices, weights = collections.OrderedDict(), {}
for r in rows:
    at = r["exec"], r["layer"], r["token_index"]
    choices.setdefault(at, []).append(r["expert"])
    weights.setdefault(at, []).append(r["weight"])
    same(f"rank at {at}", r["rank"], len(choices[at]) - 1)
same("tokens of logits and choices", sorted(logits), sorted(choices))
for at, chosen in choices.items():
    of = logits[at]
    same(f"choice at {at}", chosen, [int(i) for i in numpy.argsort(-of, kind="stable")[:len(chosen)]])
    p = numpy.exp(of[chosen] - of.max())
    if numpy.abs(p / p.sum() - weights[at]).max() > 1e-5:
        print(f"weights at {at}: {weights[at]}, want {p / p.sum()}")
    same(f"sequence at {at}", {(r["seq_id"], r["ctx"]) for r in rows}, {(0, 0)})

uses, batches = [], collections.OrderedDict()
for (exec, layer, _), chosen in choices.items():
    batches.setdefault((exec, layer), []).extend(chosen)
for (_, layer), chosen in batches.items():
    uses += [(layer, x) for x in dict.fromkeys(chosen)]
same("uses", said["uses"], len(uses))
same("choices", said["choices"], len(rows))
for l in said["layers"]:
    count = numpy.bincount([x for (_, layer, _), c in choices.items() if layer == l["layer"] for x in c], minlength=l["experts"])
    same(f"chosen in layer {l['layer']}", l["chosen"], count.tolist())
    p = count[count > 0] / count.sum()
    if abs(-(p * numpy.log2(p)).sum() - l["entropy_bits"]) > 1e-9:
        print(f"entropy of layer {l['layer']}: {l['entropy_bits']}")
    same(f"bytes in layer {l['layer']}", l["expert_bytes"], expert_bytes)

# Distances: the distinct experts of the layer between two uses of one.
by_layer = collections.defaultdict(list)
for layer, x in uses:
    by_layer[layer].append(x)
distances = [len(set(seen[k + 1:i])) for seen in by_layer.values() for i, x in enumerate(seen)
             for k in [max((k for k in range(i) if seen[k] == x), default=-1)] if k >= 0]
for s in said["slots"]:
    same(f"hits with {s['slots']} slots", s["hits"], sum(d < s["slots"] for d in distances))

for c in said["caches"]:
    held, hits = collections.OrderedDict(), 0
    for use in uses:
        if use in held:
            hits += 1
            held.move_to_end(use)
            continue
        held[use] = True
        while len(held) * expert_bytes > c["mib"] << 20:
            held.popitem(last=False)
    same(f"LRU hits with {c['mib']} MiB", c["lru_hits"], hits)
if not (logits and uses and distances and len({c["lru_hits"] for c in said["caches"]}) > 3):
    print("too little to compare")
