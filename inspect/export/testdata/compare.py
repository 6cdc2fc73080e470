"""Compares exports with what cat wrote: compare.py CAT NPY SAFETENSORS PARQUET ARROW STREAM TOKENS CODEC."""
import json, struct, sys
import duckdb, lz4.frame, numpy as np, pandas as pd, pyarrow as pa, pyarrow.parquet as pq, zstandard
from safetensors import safe_open

cat, npy, st, parquet, arrow, stream, tokens, codec = sys.argv[1:]
BATCHES = [(2, 0, 0, [0, 0, 1], "prefill"), (3, 0, 3, [0], "decode"), (4, 1, 4, [0], "prefill"), (5, 0, 5, [0, 1], "decode")]
TOKENS = {first + i: (seq, 100 + first + i, 10 + first + i, phase, exec_, ctx)
          for exec_, ctx, first, seqs, phase in BATCHES for i, seq in enumerate(seqs)}

want = {}  # (ctx, tensor) -> arrays
for c in json.load(open(f"{cat}/cat.json")):
    want.setdefault((c["ctx"], c["name"]), []).append(np.load(f"{cat}/{c['file']}"))
rows_of = {}  # rows in the stream's order, however many shapes they have
for key, arrays in want.items():
    rows_of[key] = [row for a in arrays for row in a]

def same(a, b):
    """Bit for bit, but for the bits of NaN."""
    a, b = np.asarray(a).ravel(), np.asarray(b).ravel()
    nan = np.isnan(a) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
    return a.shape == b.shape and a.dtype == b.dtype and (nan == (np.isnan(b) if b.dtype.kind == "f" else nan)).all() \
        and a[~nan].tobytes() == b[~nan].tobytes()

def check_rows(about, get):
    """get(field) is a column of a table of rows."""
    for i, index in enumerate(get("token_index")):
        if about["axis"] == "token":
            seq, id_, pos, phase, exec_, ctx = TOKENS[int(index)]
            got = [get(f)[i] for f in ("seq_id", "token_id", "pos", "exec", "request")]
            assert [int(x) for x in got] == [seq, id_, pos, exec_, -1], (about, got)
            assert str(get("phase")[i]) == phase, about

def check_array(about, a, get):
    key = (about["ctx"], about["tensor"])
    assert a.shape[0] == len(get("token_index")), about
    if about["name"].endswith(("@2", "@4")):  # a tensor of several shapes
        mine = [r for r in rows_of[key] if r.size == a[0].size]
    else:
        mine = rows_of[key]
    assert len(mine) == len(a) and all(same(x, y) for x, y in zip(a, mine)), about
    check_rows(about, get)

# npy
index = json.load(open(f"{npy}/index.json"))
assert index["source"]["run_id"].startswith("run_2026") and index["model"] == "fixture"
seen = set()
for about in index["arrays"]:
    table = np.load(f"{npy}/{about['rows']}")
    a = np.load(f"{npy}/{about['file']}")
    assert list(a.shape) == about["shape"]
    check_array(about, a, lambda f: table[f])
    seen.add((about["ctx"], about["tensor"]))
    if about["tensor"] == "ffn_out-1":
        assert [int(x) for x in table["sample_seed"]] == [2**63 + e for e in (2, 3, 5)] and list(table["sample_total"]) == [12, 4, 8]
assert seen == set(want), (seen, set(want))

# safetensors: by the library, and bfloat16, which NumPy has not, by the bytes
with open(st, "rb") as f:
    size = struct.unpack("<Q", f.read(8))[0]
    header = json.loads(f.read(size))
    body = f.read()
about = json.loads(header["__metadata__"]["llamatap"])
end = 0
for name, t in sorted(header.items(), key=lambda kv: kv[1].get("data_offsets", [-1])[0]):
    if name != "__metadata__":
        assert t["data_offsets"][0] == end and (8 + size + end) % {"F16": 2, "BF16": 2, "U8": 1, "I64": 8}.get(t["dtype"], 4) == 0, (name, t)
        end = t["data_offsets"][1]
assert end == len(body)
with safe_open(st, "np") as f:
    def load(name):
        t = header[name]
        if t["dtype"] != "BF16":
            return f.get_tensor(name)
        raw = np.frombuffer(body[slice(*t["data_offsets"])], "<u2").astype(np.uint32) << 16
        return raw.view(np.float32).reshape(t["shape"])
    for a in about["arrays"]:
        def column(field, prefix=a["rows"]):
            c = load(f"{prefix}.{field}")
            return [about["phases"][x] for x in c] if field == "phase" else c
        got = load(a["name"])
        assert list(got.shape) == a["shape"]
        check_array(a, got, column)
    assert {(a["ctx"], a["tensor"]) for a in about["arrays"]} == set(want)

# Parquet and Arrow: the same table, each row one of cat's
t = pq.read_table(parquet)
mapped = pa.ipc.open_file(pa.memory_map(arrow)).read_all()
assert json.loads(t.schema.metadata[b"llamatap"])["source"] == index["source"]
got = t.to_pylist()
assert str(got) == str(mapped.to_pylist()) and t.schema.names == mapped.schema.names
frame = pd.read_parquet(parquet)
assert len(frame) == len(got) == sum(len(r) for r in rows_of.values())
left = {k: list(v) for k, v in rows_of.items()}
for r, panda in zip(got, frame["values"]):
    row = left[(r["ctx"], r["name"])].pop(0)
    values = np.asarray(r["values"], np.float32)
    if r["name"] == "w_q-1":
        assert (values == np.arange(-16, 16)).all()
    else:
        assert same(values, row.astype(np.float32)) and same(np.asarray(panda, np.float32), row.astype(np.float32)), r
    assert (r["sample_total"] is not None) == (r["name"] == "ffn_out-1")
    if r["token_index"] is not None and r["sample_total"] is None:
        assert (r["seq_id"], r["token_id"], r["pos"], r["phase"], r["exec"], r["ctx"]) == TOKENS[r["token_index"]], r
    assert (r["layer"] is None) == (r["name"] in ("result_output", "inp_tokens"))
    assert int(np.prod(r["shape"])) == len(values)
assert not any(left.values())
sums = duckdb.sql(f"select name, ctx, count(*), sum(len(values)) from '{parquet}' group by name, ctx").fetchall()
assert {(c, n): (k, int(s)) for n, c, k, s in sums} == {k: (len(v), sum(x.size if k[1] != "w_q-1" else 32 for x in v)) for k, v in rows_of.items()}
values = duckdb.sql(f"select values from '{parquet}' where name = 'l_out-1' and token_index = 3").fetchone()[0]
assert same(np.asarray(values, np.float32), rows_of[(0, "l_out-1")][3].astype(np.float32))

# STRAP-LLM's layout: packets back to back, each !HI, name, payload; float16 assumed (its facts)
packets, data, at = [], open(stream, "rb").read(), 0
while at + 6 <= len(data):
    name_len, data_len = struct.unpack_from("!HI", data, at)
    name = data[at + 6:at + 6 + name_len].decode()
    payload = data[at + 6 + name_len:at + 6 + name_len + data_len]
    assert len(payload) == data_len
    at += 6 + name_len + data_len
    if codec == "lz4":
        payload = lz4.frame.decompress(payload)
    elif codec == "zstd":
        assert zstandard.frame_content_size(payload) >= 0
        payload = zstandard.ZstdDecompressor().decompress(payload)
    packets.append((name, payload))
assert at == len(data)
# Token by token, each with a packet of every tensor that has a row of all of them: what STRAP-LLM's even split of packets over tokens presumes.
chosen = [0, 1, 2, 3, 5, 6]
every = ["l_out-0", "l_out-1", "Qcur-0#2", "kq-0", "grows-0", "cache (view)", "inp_tokens"]
assert [name for name, _ in packets] == every * len(chosen), [name for name, _ in packets]
for i, (name, payload) in enumerate(packets):
    row = rows_of[(0, name)][i // len(every)]
    if name == "inp_tokens":
        assert payload == row.tobytes() and int(row) == 100 + chosen[i // len(every)]
        continue
    with np.errstate(over="ignore"):
        assert same(np.frombuffer(payload, np.float16), row.astype(np.float16)), (name, i)
known = json.load(open(tokens))
assert set(known) == {"total_tokens", "tokens", "capture_duration_seconds"} and known["total_tokens"] == 6 == len(known["tokens"])
assert [set(k) for k in known["tokens"]] == [{"token_index", "token_id", "token_text"}] * 6
assert [(k["token_index"], k["token_id"], k["token_text"]) for k in known["tokens"]] == [(i, 100 + i, f"<ü{i}>") for i in chosen]
assert known["capture_duration_seconds"] in (0.5, 1.0)
