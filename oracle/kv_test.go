//go:build linux

package oracle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestServerReuse: what llama-server says of its prompt caches is what the cells say. Slots ask at the same time,
// prompts go on where others ended, and begin anew; with --cache-ram llama-server saves prompts and loads them
// again, where only tokens that read it show what was loaded.
func TestServerReuse(t *testing.T) {
	for _, ram := range []string{"0", "64"} {
		t.Run(ram, func(t *testing.T) { serverReuse(t, ram) })
	}
}

func serverReuse(t *testing.T, ram string) {
	const slots, rounds = 3, 6
	s := serve(t, []string{"--tap-kv", "--tap-kv-block", "16", "--tap-resource-level", "DETAILED"}, "-np",
		fmt.Sprint(slots), "-c", "3072", "-b", "64", "-t", "1", "--no-webui", "--cache-ram", ram)
	var answers [slots][rounds]completionAnswer
	var all sync.WaitGroup
	for slot := range int32(slots) {
		own := fmt.Sprintf("package p%d\n", slot)
		prompts := [rounds]string{own, own + "func main() {", own + "func main() {", long + own, long + own +
			"\n\treturn", own + long}
		all.Go(func() {
			for i, prompt := range prompts {
				answers[slot][i] = s.ask(t, question{prompt: prompt, slot: slot, n: 1 + (i*3+int(slot))%7})
			}
		})
	}
	all.Wait()
	s.stop()
	dirs := runDirs(t, s.out)
	if len(dirs) != 1 {
		t.Fatalf("runs: %v\n%s", dirs, s.stderr.String())
	}
	k, err := resources.OpenKV(context.Background(), dirs[0], 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	reused, needed, generated := int64(0), int64(0), int64(0)
	for slot := range answers {
		for _, a := range answers[slot] {
			reused += int64(a.Timings.Cached)
			needed += int64(a.Timings.Cached + a.Timings.Prompt)
			generated += int64(a.Predicted - 1) // the last one is not computed with
		}
	}
	r := k.Last.Reuse
	if r.Requests != slots*rounds || r.Reused != reused || r.Needed != needed || reused == 0 || r.Unknown != 0 {
		t.Errorf("%+v; llama-server reused %d of %d", r, reused, needed)
	}
	if d := k.Last.Doubts; (d.Found != 0) != (ram != "0") || d.Outside+d.Differ+d.Unknown+d.Unplaced != 0 {
		t.Errorf("doubts: %+v", d)
	}
	c := cacheByEvents(t, dirs[0])
	if used := k.Last.Freed[0].Used; c.Used != int64(used) || c.HitRatio == nil ||
		*c.HitRatio != float64(reused)/float64(needed) {
		t.Errorf("by the events %d cells are used, reuse %v; by the lives %d, and llama-server reused %d of %d", c.Used,
			c.HitRatio, used, reused, needed)
	}
	layers := 0
	for _, l := range k.Layers {
		if l.Writes != needed-reused+generated {
			t.Errorf("layer %d: %d cells written, want %d", l.Layer, l.Writes, needed-reused+generated)
		}
		layers++
	}
	evicted := int64(0)
	for _, seq := range k.Sequences {
		evicted += seq.Ended["seq_rm"]
	}
	if layers == 0 || len(k.Sequences) != slots || evicted == 0 {
		t.Errorf("%d parts, %d sequences, %d lives ended by a removal", layers, len(k.Sequences), evicted)
	}
}

// cacheByEvents is what resource summary says of a run's only cache.
func cacheByEvents(t *testing.T, dir string) resources.CacheUse {
	t.Helper()
	var summary struct {
		KV []resources.CacheUse `json:"kv"`
	}
	out := llamatap(t, "resource", "summary", "--json", dir).good(t).stdout
	if err := json.Unmarshal([]byte(out), &summary); err != nil || len(summary.KV) != 1 {
		t.Fatalf("%v: %.300s", err, out)
	}
	return summary.KV[0]
}

// TestServerFullCache: where decodes fail because the cache of all slots is full, and come again with fewer tokens,
// prompts are those of llama-server.
func TestServerFullCache(t *testing.T) {
	s := serve(t, []string{"--tap-kv", "--tap-requests"}, "-np", "2", "-c", "256", "--kv-unified", "-t", "1",
		"--metrics",
		"--no-webui")
	body := map[string]any{"prompt": []string{"func main() {", "func main() {}"}, "n_predict": 200, "ignore_eos": true,
		"temperature": 0}
	text, _ := json.Marshal(body)
	response, err := http.Post(s.url+"/completion", "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	prompts := s.counters(t)["prompt_tokens_total"]
	s.stop()
	dirs := runDirs(t, s.out)
	if len(dirs) != 1 || response.StatusCode != http.StatusInternalServerError || prompts == 0 {
		t.Fatalf("runs %v, status %s, %d prompt tokens: the cache was not full", dirs, response.Status, prompts)
	}
	var kv resources.KV
	if err := json.Unmarshal([]byte(llamatap(t, "kv", "--json", dirs[0]).good(t).stdout), &kv); err != nil {
		t.Fatal(err)
	}
	m, r := metadata(t, dirs[0]), kv.Last.Reuse
	if m.Tokens.Prompt != prompts || r.Requests != 2 || r.Needed != prompts || r.Reused != 0 {
		t.Errorf("%d prompt tokens, %+v; llama-server says %d", m.Tokens.Prompt, r, prompts)
	}
}

// TestKVOfDevice: lives on a device, the CPU behind a socket, are those on the CPU itself: in time they differ, in
// nothing else.
func TestKVOfDevice(t *testing.T) {
	testenv.Slow(t)
	models := map[string]string{"default": testenv.Model(t), "window": synthetic(t, "gemma2", gguf.F16, nil),
		"hybrid": synthetic(t, "jamba", gguf.F16, nil)}
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	for name, model := range models {
		for _, fa := range []string{"on", "off"} {
			t.Run(name+" fa "+fa, func(t *testing.T) {
				args := []string{"exec", "--tap-kv", "--tap-kv-block", "4", "--", "llama-completion", "-m", model,
					"-p", prompt, "-n", "12", "--temp", "0", "-t", "1", "-c", "512", "-ub", "16",
					"-fa", fa, "-no-cnv"}
				cpu, there := livesOf(t, append(args, "-dev", "none")), livesOf(t, append(args, "--rpc", endpoint,
					"-ngl", "99"))
				if !reflect.DeepEqual(cpu, there) || len(cpu.Layers) < 4 || cpu.Sequences[0].Writes < 12 {
					t.Errorf("on the device: %+v\non the CPU: %+v", there, cpu)
				}
			})
		}
	}
}

// TestKVOfPromptCache: what a prompt cache brought back before anything was computed is found when tokens read it.
func TestKVOfPromptCache(t *testing.T) {
	args := []string{"run", "--tap-kv", "-p", long, "-n", "5", "--temp", "0", "-t", "1",
		"--prompt-cache", filepath.Join(t.TempDir(), "cache")}
	first, second := livesOf(t, args).Last, livesOf(t, args).Last
	n := first.Reuse.Needed
	if n < 50 || first.Reuse.Reused != 0 || first.Doubts.Found != 0 || !first.Freed[0].Whole {
		t.Errorf("the first: %+v", first)
	}
	if r := second.Reuse; r.Needed != n || r.Reused != n-1 || r.Hits != 1 || second.Doubts.Found != n-1 ||
		second.Freed[0].Whole {
		t.Errorf("the second: %+v, want %d of %d reused", second, n-1, n)
	}
}

// tableOfLives asks others what they see in a table of lives.
const tableOfLives = `
import sys, pandas, pyarrow.parquet as pq, duckdb
name = sys.argv[1]
f = pq.ParquetFile(name)
assert f.schema_arrow.metadata[b"llamatap_schema_version"] == b"2.0", f.schema_arrow.metadata
columns = "block_id layer kv seq_id pos_start pos_end cell_start cell_end alloc_ns first_write_ns " \
    "last_write_ns n_writes first_read_ns last_read_ns n_reads evict_ns evict_reason censored"
columns = columns.split()
assert f.schema_arrow.names[:len(columns)] == columns, f.schema_arrow.names
types = {n: str(f.schema_arrow.field(n).type) for n in columns}
assert types["censored"] == "bool" and types["kv"] == types["evict_reason"] == "string" and \
    types["n_writes"] == "int64" and types["evict_ns"] == "timestamp[ns]" and types["layer"] == "int32", types
assert all(f.schema_arrow.field(n).metadata[b"description"] for n in f.schema_arrow.names)
d = pandas.read_parquet(name)
assert str(d.evict_ns.dtype) == "datetime64[ns, UTC]", d.dtypes
assert len(d) > 20 and (d.evict_ns.isna() == d.censored).all() and (d.evict_reason.isna() == d.censored).all()
assert ((d.evict_ns - d.alloc_ns).dropna() > pandas.Timedelta(0)).all() and \
    (d.last_read_ns >= d.first_read_ns).all() and (d.first_write_ns >= d.alloc_ns).all()
exact = pq.read_table(name, columns=["evict_ns"])["evict_ns"].cast("int64").to_pylist()
assert [v.value if v is not pandas.NaT else None for v in d.evict_ns] == exact
assert [v for v, in duckdb.sql(f"select epoch_ns(evict_ns) from '{name}'").fetchall()] == exact
rows = duckdb.sql(f"select evict_reason, count(*) from '{name}' where kv = 'k' and layer = 0 "
    "group by 1 order by 1").fetchall()
print(rows)
`

// TestOthersReadLives lets pandas, pyarrow and DuckDB read a table of a run whose context was shifted.
func TestOthersReadLives(t *testing.T) {
	python := testenv.NeedPython(t, "pyarrow.parquet", "pandas", "duckdb")
	out := t.TempDir()
	llamatap(t, "run", "--tap-kv", "--tap-kv-block", "8", "--tap-out", out, "-p", prompt, "-n", "300", "-c", "256",
		"--keep", "2", "--context-shift", "--temp", "0", "-t", "1").good(t)
	dirs := runDirs(t, out)
	seen, err := exec.Command(python, "-c", tableOfLives, filepath.Join(dirs[0], rundir.LivesName)).CombinedOutput()
	if err != nil || !strings.Contains(string(seen), "seq_rm") {
		t.Errorf("%v: %s", err, seen)
	}
}

// livesOf records lives, and leaves out times.
func livesOf(t *testing.T, args []string) *resources.KV {
	t.Helper()
	out := t.TempDir()
	llamatap(t, slices.Concat(args[:1], []string{"--tap-out", out}, args[1:])...).good(t)
	dirs := runDirs(t, out)
	if len(dirs) != 1 {
		t.Fatalf("runs: %v", dirs)
	}
	k, err := resources.OpenKV(context.Background(), dirs[0], 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(k.Gauges()) == 0 {
		t.Fatal("no cache was seen")
	}
	k.Path, k.BeginUnixNS, k.Seconds, k.Timeline, k.Last.UnixNS, k.Last.Reuse.Gap = "", 0, 0, nil, 0,
		kvcache.Histogram{}
	k.Last.Lifetime, k.Last.Idle, k.Last.MadeUnixNS = kvcache.Histogram{}, kvcache.Histogram{}, 0
	for i := range k.Last.Freed {
		k.Last.Freed[i].FreedUnixNS = 0
	}
	for i := range k.Sequences {
		k.Sequences[i].Lifetime, k.Sequences[i].Idle = resources.Spread{}, resources.Spread{}
	}
	return k
}

// TestKVOfDrafts: a model and one that drafts for it have caches of their own, both are followed whole, and
// rejected drafts are evicted from both.
func TestKVOfDrafts(t *testing.T) {
	testenv.Slow(t)
	own, hybrid := testenv.Model(t), synthetic(t, "jamba", gguf.F16, nil)
	for name, model := range map[string]string{"itself": own, "hybrid": hybrid} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, []string{"--tap-kv", "--tap-kv-block", "1", "--tap-resource-level", "MINIMAL"},
				"-m", model, "-np", "2", "-c", "1024", "-t", "1", "--no-webui", "--cache-ram", "0",
				"--spec-type", "draft-simple", "-md", own, "-td", "1")
			drafted, accepted, tokens := 0, 0, rundir.Tokens{}
			for i, prompt := range []string{"func main() {", "package http", "func main() {\n\treturn"} {
				a := s.ask(t, question{prompt: prompt, slot: int32(i % 2), n: 40})
				drafted, accepted = drafted+a.Timings.Drafted, accepted+a.Timings.Accepted
				tokens.Prompt += int64(a.Timings.Prompt)
				tokens.Generated += int64(a.Timings.Predicted) - 1 // the last one is not decoded
				tokens.Requests += 2                               // the draft model has them too
			}
			tokens.Rejected = int64(drafted - accepted)
			s.stop()
			dirs := runDirs(t, s.out)
			if len(dirs) != 1 {
				t.Fatalf("runs: %v\n%s", dirs, s.stderr.String())
			}
			if model != own { // its memory cannot be cut: what was accepted is taken back too, and computed again
				again := metadata(t, dirs[0]).Tokens.Rejected
				if again < tokens.Rejected {
					t.Errorf("%d tokens were taken back, and the server rejected %d", again, tokens.Rejected)
				}
				tokens.Rejected = again
			}
			countedTokens(t, dirs[0], tokens)
			k, err := resources.OpenKV(context.Background(), dirs[0], 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			contexts, evicted := map[int64]bool{}, map[int64]int64{}
			for _, seq := range k.Sequences {
				contexts[seq.Ctx] = true
				evicted[seq.Ctx] += seq.Ended["seq_rm"]
			}
			if d := k.Last.Doubts; d.Outside+d.Differ+d.Unknown+d.Unplaced != 0 || model == own && d.Found != 0 {
				t.Errorf("doubts: %+v", d)
			}
			if len(contexts) != 2 || drafted == 0 || model == own && evicted[0] < int64(drafted-accepted) {
				t.Errorf("%d contexts, %v evicted; %d of %d drafts accepted", len(contexts), evicted, accepted, drafted)
			}
			for _, g := range k.Gauges() {
				if model == own && !g.Whole {
					t.Errorf("%+v", g)
				}
			}
		})
	}
}

// countedTokens compares the tokens of a run, as its metadata and its events have them, with what a server says. What a
// draft model computed is no token of the run, and in neither it is missing.
func countedTokens(t *testing.T, dir string, want rundir.Tokens) {
	t.Helper()
	m := metadata(t, dir)
	got := *m.Tokens
	want.Drafts, want.Setup = got.Drafts, got.Setup
	rows := m.Phases["prefill"].Tokens + m.Phases["decode"].Tokens
	if got != want || got.Drafts == 0 || got.Prompt+got.Generated+got.Rejected+got.Drafts != rows {
		t.Errorf("tokens %+v, the server has %+v, and %d rows were computed", got, want, rows)
	}
	var events struct {
		Phases []resources.PhaseRow `json:"phases"`
	}
	out := llamatap(t, "resource", "summary", "--json", dir).good(t).stdout
	if err := json.Unmarshal([]byte(out), &events); err != nil {
		t.Fatal(err)
	}
	sum := rundir.Tokens{Requests: want.Requests, Setup: got.Setup}
	for _, p := range events.Phases {
		switch p.Phase {
		case "prefill":
			sum.Prompt = p.Tokens
		case "decode":
			sum.Generated = p.Tokens
		}
		sum.Drafts, sum.Rejected = sum.Drafts+p.Drafts, sum.Rejected+p.Rejected
	}
	if sum != got {
		t.Errorf("tokens %+v, events have %+v", got, sum)
	}
}
