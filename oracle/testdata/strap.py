"""Reads an export with STRAP-LLM's own package: strap.py STREAM TOKENS CODEC NPY-EXPORT ANALYSIS. Each packet must be
labelled with its own token, and its correlations must be those of llamatap analyze."""
import json, sys, types
import numpy as np


class Stub(types.ModuleType):
    """Stands for a module that the package imports and its readers do not use."""
    def __getattr__(self, name):
        return type(name, (), {})


for name in ("torch", "torch.nn", "aiofiles"):
    sys.modules[name] = Stub(name)
sys.modules["torch"].nn = sys.modules["torch.nn"]
from llm_instrumentation.analysis.visualization import analyze_circuits, build_packet_dataframe, load_stream_packets

stream, tokens, codec, npy, analysis = sys.argv[1:]
known = json.load(open(tokens))
packets = load_stream_packets(stream, codec, include_failed=True)
assert packets and not any(p.get("error") for p in packets), packets[:1]
frame = build_packet_dataframe(packets, known)
texts = {t["token_index"]: t["token_text"] for t in known["tokens"]}
arrays = {}
for a in json.load(open(f"{npy}/index.json"))["arrays"]:
    arrays.setdefault(a["tensor"], []).append((np.load(f"{npy}/{a['file']}"), np.load(f"{npy}/{a['rows']}")["token_index"]))
wrong = compared = 0
for p in frame.itertuples():
    rows = [a[i] for a, index in arrays[p.layer_name] for i in np.flatnonzero(index == p.token_index)]
    if rows and rows[0].dtype.kind != "f":
        continue
    compared += 1
    norm = np.linalg.norm(rows[0].astype(np.float64)) if len(rows) == 1 else np.nan
    wrong += not np.isclose(p.l2_norm, norm, rtol=1e-3) or texts[p.token_index] != p.token_text
assert compared > 1000 and wrong == 0, f"{wrong} of {compared} packets have another token's values"
assert set(frame["token_index"]) == set(texts), (set(texts) - set(frame["token_index"]))
ours = {frozenset((c["layer_a"], c["layer_b"])): c for c in json.load(open(analysis))["correlations"]}
circuits = analyze_circuits(frame, min_correlation=0, top_k=10**6)
pairs = [(c, ours[pair]) for c in circuits.itertuples() if (pair := frozenset((c.layer_a, c.layer_b))) in ours]
assert len(pairs) > 10, (len(pairs), len(circuits), len(ours))
for c, own in pairs:  # STRAP-LLM's values are float16
    assert abs(c.correlation - own["correlation"]) < 2e-3 and own["n"] == len(texts), (c, own)
print(compared, len(pairs))
