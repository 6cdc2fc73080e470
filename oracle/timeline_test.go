//go:build linux

package oracle

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// timelines reads the four formats with programs that others wrote, holds them against resource.jsonl, and runs the
// laws that docs/timeline_laws.sql states over the Perfetto trace: read with the published protobuf definitions, put
// into tables of trace_processor's names.
const timelines = `
import collections, json, os, sys, zlib, duckdb, pandas
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
run, folder, laws = sys.argv[1:]
events = [json.loads(l) for l in open(run + "/resource.jsonl")]
graphs = [e for e in events if e["event"] == "graph_execution" and "duration_ns" in e]
tokens = [e for e in events if e["event"] == "output_token"]
ops = [e for e in events if e["event"] == "compute_execution" and "duration_ns" in e and "within" not in e
       and e["time_source"] not in ("graph", "synchronize") and e["operation"] != "range"]
whole = sum(g["duration_ns"] for g in graphs)

trace = pb.Trace()
trace.ParseFromString(open(folder + "/t.pftrace", "rb").read())
packets = []
for p in trace.packet:
    if p.HasField("compressed_packets"):
        inner = pb.Trace()
        inner.ParseFromString(zlib.decompress(p.compressed_packets))
        packets += inner.packet
    else:
        packets.append(p)
names, cats, notes, tracks, slices, args, flows, counters = {}, {}, {}, {}, [], [], collections.defaultdict(list), 0
marks = []
for at, p in enumerate(packets):
    for table, texts in ((names, p.interned_data.event_names), (cats, p.interned_data.event_categories),
                         (notes, p.interned_data.debug_annotation_names)):
        for t in texts:
            table[t.iid] = t.name
    if p.HasField("track_descriptor"):
        tracks[p.track_descriptor.uuid] = p.track_descriptor.name
    if p.HasField("track_event"):
        assert p.track_event.track_uuid in tracks, "an event on a track that nobody described"
        marks.append((p.timestamp, at, p.track_event))
marks.sort(key=lambda m: (m[0], m[1]))
stacks = collections.defaultdict(list)
for ts, _, e in marks:
    stack = stacks[e.track_uuid]
    if e.type == e.TYPE_SLICE_BEGIN:
        i = len(slices) + 1
        slices.append([i, ts, -1, e.track_uuid, len(stack), stack[-1] if stack else None, names[e.name_iid],
                       cats[e.category_iids[0]], i])
        for a in e.debug_annotations:
            args.append((i, "debug." + notes[a.name_iid], a.int_value if a.HasField("int_value") else None,
                         a.string_value if a.HasField("string_value") else None))
        for f in e.flow_ids:
            flows[f].append(i)
        stack.append(i)
    elif e.type == e.TYPE_SLICE_END:
        s = slices[stack.pop() - 1]
        s[2] = ts - s[1]
    elif e.type == e.TYPE_COUNTER:
        counters += 1
assert not any(stacks.values()), "slices without an end"
db = duckdb.connect()
def table(name, columns, rows):
    frame = pandas.DataFrame(rows, columns=columns).convert_dtypes()
    db.execute(f"create table {name} as select * from frame")
table("slice", ["id", "ts", "dur", "track_id", "depth", "parent_id", "name", "category", "arg_set_id"], slices)
table("args", ["arg_set_id", "key", "int_value", "string_value"], args)
table("flow", ["slice_out", "slice_in"], [(a, b) for ids in flows.values() for a, b in zip(ids, ids[1:])])
db.execute("create macro EXTRACT_ARG(s, k) as (select max(int_value) from args where arg_set_id = s and key = k)")
broken = db.execute(open(laws).read()).fetchall()
assert not broken, broken[:5]
one = lambda q: db.execute(q).fetchone()[0] or 0
assert one("select count(*) from slice where category = 'graph'") == len(graphs) > 1
assert one("select sum(dur) from slice where category = 'graph'") == whole
assert one("select count(*) from slice where category = 'token'") == len(tokens)
assert one("select count(*) from slice where category = 'op'") == len(ops), (len(ops),)
took = sum(o["duration_ns"] for o in ops)
assert abs(one("select sum(dur) from slice where category = 'op'") - took) <= took / 1000
level = next(e["level"] for e in events if e["event"] == "resource_session_start")
parts = {c: one(f"select count(*) from slice where category = '{c}'") for c in ("layer", "component", "op", "fault")}
assert (parts["layer"] > 1 and parts["component"] > 1) == (level != "MINIMAL"), parts
assert (parts["op"] > 10) == (level == "VERBOSE"), parts
assert parts["fault"] > 0 or not os.path.exists(run + "/host_faults.jsonl"), parts
asked = collections.Counter()
if os.path.exists(run + "/host_faults.jsonl"):
    waits = [json.loads(l) for l in open(run + "/host_faults.jsonl")]
    asked = collections.Counter(w["kind"] for w in waits)
    majors = [w for w in waits if w["kind"] == "fault" and w.get("major") and w.get("file")]
    arrows = one("select count(distinct f.id) from flow w join slice f on f.id in (w.slice_out, w.slice_in)"
                 " join slice q on q.id in (w.slice_out, w.slice_in)"
                 " where f.category = 'fault' and q.category = 'request'")
    found = arrows, len(majors), asked
    assert len(majors) <= arrows <= asked["fault"] and (arrows > 0 or not asked["request"]), found
assert one("select count(*) from slice where category = 'request'") == asked["request"], asked
assert counters > 1
joined = one("select count(*) from flow w join slice t on w.slice_out = t.id join slice g on w.slice_in = g.id"
             " where t.category = 'token' and g.category = 'graph' and t.ts <= g.ts")
assert joined == len([t for t in tokens if t["exec"] in {g["exec"] for g in graphs}]), joined

chrome = json.load(open(folder + "/t.json"))["traceEvents"]
by = collections.Counter((e["ph"], e.get("cat")) for e in chrome)
assert by["X", "graph"] == len(graphs) and by["X", "op"] == len(ops) and by["X", "token"] == len(tokens), by
assert all(e["dur"] >= 0 and e["ts"] > 0 for e in chrome if e["ph"] == "X")
assert round(1000 * sum(e["dur"] for e in chrome if e.get("cat") == "graph")) == whole
assert by["b", "request"] == by["e", "request"] == asked["request"], (by, asked)
assert all({"ph", "ts", "pid", "tid"} <= set(e) for e in chrome)

scope = json.load(open(folder + "/t.speedscope"))
for p in scope["profiles"]:
    stack, last, roots = [], p["startValue"], 0
    for e in p["events"]:
        assert e["at"] >= last
        last = e["at"]
        if e["type"] == "O":
            stack.append((e["frame"], e["at"]))
        else:
            frame, began = stack.pop()
            assert frame == e["frame"]
            roots += 0 if stack else e["at"] - began
    assert not stack and last == p["endValue"] and roots == whole
print(whole)
`

// TestTimelines: the exports of runs are read back by other people's readers, agree with their events, and break none
// of the laws: one prompt, experts, several sequences at once, at every level.
func TestTimelines(t *testing.T) {
	python := testenv.NeedPython(t, "perfetto", "duckdb", "pandas")
	laws := filepath.Join(testenv.Root(t), "docs", "timeline_laws.sql")
	model, parallel := testenv.Model(t), synthetic(t, "llama", gguf.Q8_0, nil)
	generate := []string{"run", "-p", prompt, "-n", "24", "-t", "1", "--temp", "0", "--ignore-eos", "-m"}
	sequences := []string{"--", "llama-parallel", "-m", parallel, "-np", "3", "-ns", "4", "-n", "6", "-c", "8192",
		"-t", "1"}
	for _, c := range testenv.ByDay([]struct {
		name string
		args []string
	}{
		{"VERBOSE, half of it timed", append(generate, model, "--tap-resource-level", "VERBOSE",
			"--tap-resource-sample", "2", "--tap-kv", "--tap-host", "waits", "--tap-host-details", "--tap-cold")},
		{"DETAILED, experts", append(generate, synthetic(t, "qwen3moe", gguf.Q8_0, nil), "--tap-resource-level",
			"DETAILED")},
		{"DETAILED, sequences", append([]string{"exec", "--tap-resource-level", "DETAILED"}, sequences...)},
		{"MINIMAL, sequences", append([]string{"exec", "--tap-resource-level", "MINIMAL"}, sequences...)},
	}, 1) {
		t.Run(c.name, func(t *testing.T) {
			run, folder := llamatap(t, c.args...).good(t).dirs[0], t.TempDir()
			for format, name := range map[string]string{"perfetto": "t.pftrace", "chrome": "t.json",
				"speedscope": "t.speedscope", "pprof": "t.pb.gz"} {
				llamatap(t, "export", run, "--to", format, "-o", filepath.Join(folder, name), "--max-size", "100M").
					good(t)
			}
			out, err := exec.Command(python, "-c", timelines, run, folder, laws).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			total := strings.TrimSpace(string(out)) + "ns total"
			top, err := exec.Command("go", "tool", "pprof", "-top", "-unit=ns",
				filepath.Join(folder, "t.pb.gz")).CombinedOutput()
			if err != nil || !strings.Contains(string(top), total) {
				t.Errorf("pprof does not find %s: %v\n%.600s", total, err, top)
			}
		})
	}
}
