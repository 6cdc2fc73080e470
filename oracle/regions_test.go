//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// surveyor builds a map as a run does, and looks every operand of every executed node up in it.
type surveyor struct {
	*witness
	*ledger.RegionRecorder
	t        *testing.T
	model    *gguf.File
	operands int
	far      int // of these, on a device
	found    map[memtrace.RegionType]int
}

func newSurveyor(t *testing.T, model string) *surveyor {
	t.Helper()
	file, err := gguf.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	return &surveyor{witness: newWitness(), t: t,
		RegionRecorder: ledger.NewRegionRecorder(ledger.RegionOptions{Model: gguf.Open}),
		model:          file, found: map[memtrace.RegionType]int{}}
}

// survey hands what the tap reports of a program to the map, and looks at it.
func (s *surveyor) survey(cmd *exec.Cmd) {
	s.t.Helper()
	watchSink(s.t, collect.Machine{}, everyone{s.witness, ggmlhooks.NewAssembler(0, s.RegionRecorder, looker{s})}, cmd)
}

// looker is the surveyor as a recorder.
type looker struct{ s *surveyor }

func (looker) Begin(*ggmlhooks.Execution) error { return nil }
func (looker) Resolve(ggmlhooks.Resolve) error  { return nil }
func (looker) Close() error                     { return nil }

// End looks at what was executed while the map is as it was then.
func (l looker) End(x *ggmlhooks.Execution) error {
	s, g := l.s, x.Graph
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if !n.Computed {
			continue
		}
		for _, src := range n.Src { // its result may take the place of a source
			s.operand(g, i-1, src, x.End.MonoNS-1)
		}
		s.operand(g, i, int32(i), x.End.MonoNS-1)
	}
	return nil
}

// operand demands that the region at a tensor's place, when a node has been computed, is the tensor that the graph
// says.
func (s *surveyor) operand(g *ggmlhooks.Graph, node int, src int32, ns int64) {
	if elementsOf(g, src) == 0 {
		return // an op on nothing, such as the states of sequences that are not moved
	}
	s.operands++
	root := rootOf(g, src)
	place := placeOf(g, src)
	h := s.Map().At(place.Buffer, place.Offset)
	if h.Type() == memtrace.ComputeBuffer {
		h = s.Map().Layouts.Of(g.ID).At(place.Buffer, place.Offset, node)
	}
	name := operandName(g, root)
	if h.Region == nil {
		s.t.Errorf("%s of %s: nothing lies at %+v", name, g.Nodes[max(node, 0)].Name, place)
		return
	}
	s.found[h.Type()]++
	b := s.buffers[place.Buffer]
	if !b.Host {
		s.far++
		if at := s.Map().Address(b.Base+place.Offset, ns); at.Region != nil && at.Region.Buffer == place.Buffer {
			s.t.Errorf("%s lies on a device, and is found by its address", name)
		}
	} else if at := s.Map().Address(b.Base+place.Offset, ns); h.Type() != memtrace.Activation && at != h {
		s.t.Errorf("%s: %+v at its place, %+v at its address", name, h.Region, at.Region)
	} else if at.Type() != h.Type() && at.Type() != memtrace.ComputeBuffer {
		s.t.Errorf("%s: its address is of type %v", name, at.Type())
	}
	s.compare(h.Region, g, root, name)
}

// compare holds a region against a tensor's name: weights are those of the file, caches and activations say what
// they are.
func (s *surveyor) compare(r *memtrace.Region, g *ggmlhooks.Graph, root int32, name string) {
	s.t.Helper()
	cache := strings.HasPrefix(name, "cache_")
	if cache {
		name, _, _ = strings.Cut(name, " (") // what is computed in its place
	}
	switch weight, ok := s.model.Tensor(name); {
	case ok && root < 0:
		if r.Type != memtrace.Weight || r.Tensor != name || r.DType != weight.Type.String() ||
			!slices.Equal(r.Shape, weight.Shape) || strings.HasPrefix(name, "blk.1.") && r.Layer != 1 {
			s.t.Errorf("%s: %+v", name, r)
		}
	case cache:
		part, layer, _ := strings.Cut(strings.TrimPrefix(name, "cache_"), "_l")
		if n, _ := strconv.Atoi(layer); r.Type != memtrace.KVCache || r.Tensor != name || r.Part != part ||
			r.Layer != n {
			s.t.Errorf("%s: %+v", name, r)
		}
	case root < 0 && !g.Leafs[-1-root].Input && r.Type != memtrace.Activation:
		s.t.Errorf("%s: %+v", name, r)
	case r.Type != memtrace.Activation || r.Tensor != name || r.Ctx != int(g.Ctx):
		s.t.Errorf("%s: %+v", name, r)
	}
}

// rootOf follows what only shows another tensor, or writes into one, to that tensor.
func rootOf(g *ggmlhooks.Graph, src int32) int32 {
	for src >= 0 {
		n := &g.Nodes[src]
		k, writes := map[string]int{"SET_ROWS": 2, "CPY": 1}[n.Op]
		next, ok := n.SrcAt(k)
		if !ok || next == src || !n.View && !writes {
			break
		}
		src = next
	}
	return src
}

func placeOf(g *ggmlhooks.Graph, src int32) ggmlhooks.Place {
	if src >= 0 {
		return g.Nodes[src].Place
	}
	return g.Leafs[-1-src].Place
}

func elementsOf(g *ggmlhooks.Graph, src int32) int64 {
	var ne [4]int64
	if src >= 0 {
		ne = g.Nodes[src].NE
	} else {
		ne = g.Leafs[-1-src].NE
	}
	return ne[0] * ne[1] * ne[2] * ne[3]
}

func operandName(g *ggmlhooks.Graph, src int32) string {
	if src < 0 {
		return g.Leafs[-1-src].Name
	}
	if alias := g.Nodes[src].Alias; alias >= 0 {
		return g.Nodes[alias].Name
	}
	return g.Nodes[src].Name
}

// TestRegionsOfOperands: every source and destination of every executed node lies in the region that its name says,
// in mapped weights, loaded and repacked ones, on the CPU and on a device, in caches of all kinds, with flash
// attention and without.
func TestRegionsOfOperands(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	tap := filepath.Join(filepath.Dir(testenv.NeedBinary(t)), "libllamatap.so")
	for _, c := range []struct {
		arch string
		typ  gguf.Type
		args []string
	}{
		{"", 0, nil}, {"", 0, []string{"-fa", "off"}}, {"", 0, []string{"--load-mode", "none"}},
		{"gemma2", gguf.F16, nil}, {"jamba", gguf.F16, nil},
		{"qwen3moe", gguf.Q8_0, nil}, {"llama", gguf.Q4_K, nil}, {"", 0, []string{"--rpc", endpoint, "-ngl", "99"}},
		{"jamba", gguf.F16, []string{"--rpc", endpoint, "-ngl", "2", "-fa", "off"}},
	} {
		t.Run(fmt.Sprint(c.arch, c.args), func(t *testing.T) {
			model := testenv.Model(t)
			if c.arch != "" {
				model = synthetic(t, c.arch, c.typ, nil)
			}
			s := newSurveyor(t, model)
			cmd := testenv.NeedTool(t, "llama-completion").Command(append([]string{"-m", model, "-p", prompt, "-n", "4",
				"--temp", "0", "-t", "1", "-c", "256", "-ub", "16", "-no-cnv"}, c.args...)...)
			cmd.Args[1] += ":" + tap
			s.survey(cmd)
			d := s.Doubts()
			if d.Executions == 0 || d != (memtrace.Doubts{Executions: d.Executions}) || s.operands < 500 {
				t.Errorf("%+v, %d operands", d, s.operands)
			}
			for _, kind := range []memtrace.RegionType{memtrace.Weight, memtrace.KVCache, memtrace.Activation} {
				if s.found[kind] == 0 {
					t.Errorf("no operand was %v: %v", kind, s.found)
				}
			}
			repacked := slices.ContainsFunc(s.Map().Regions(), func(r *memtrace.Region) bool {
				kind := s.Map().Buffer(r.Buffer).Type
				return r.Type == memtrace.Weight && r.Use.Reads > 0 &&
					(kind == "AMX" || strings.Contains(kind, "REPACK"))
			})
			if repacked != (c.typ == gguf.Q4_K) && !(repacked && multipliesByAMX()) {
				t.Errorf("weights that are repacked: %v, in %+v", repacked, s.buffers)
			}
			for i, b := range s.Map().Buffers() {
				for _, o := range s.Map().Buffers()[:i] {
					if b.Host && o.Host && b.Base < o.Base+o.Size && o.Base < b.Base+b.Size && b.From < o.To &&
						o.From < b.To {
						t.Errorf("one memory, two buffers: %+v, %+v", b, o)
					}
				}
			}
			if device := slices.Contains(c.args, "--rpc"); device != (s.far > 0) {
				t.Errorf("%d operands on a device", s.far)
			}
		})
	}
}

// TestRegionsOfModelThatIsLoadedTwice: of a model that was freed and loaded again there are the tensors twice, each
// for its time, whatever addresses they had.
func TestRegionsOfModelThatIsLoadedTwice(t *testing.T) {
	program, backends := testenv.Greedy(t, false)
	tap := filepath.Join(filepath.Dir(testenv.NeedBinary(t)), "libllamatap.so")
	s := newSurveyor(t, testenv.Model(t))
	cmd := exec.Command(program, testenv.Model(t), backends, "3", "2")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+tap)
	s.survey(cmd)
	lives := map[string][]*memtrace.Region{}
	for _, r := range s.Map().Regions() {
		if r.Type == memtrace.Weight || r.Type == memtrace.KVCache {
			lives[r.Tensor] = append(lives[r.Tensor], r)
		}
	}
	for _, name := range []string{"output.weight", "blk.3.attn_k.weight", "cache_k_l2", "cache_v_l5"} {
		l := lives[name]
		if len(l) != 2 || l[0].From >= l[0].To || l[0].To > l[1].From || l[1].From >= l[1].To ||
			l[1].To == memtrace.Forever || l[0].Use.Reads == 0 || l[0].Use.Reads != l[1].Use.Reads {
			t.Errorf("%s: %+v", name, l)
			continue
		}
		for i, r := range l {
			b := s.Map().Buffer(r.Buffer)
			if h := s.Map().Address(b.Base+r.Offset+3, (r.From+r.To)/2); h.Region != r || h.Offset != 3 {
				t.Errorf("%s, time %d: at its address lies %+v", name, i, h.Region)
			}
		}
	}
	if d := s.Doubts(); d.Executions != 6 || d.Unplaced+d.Overlaps+d.Failed != 0 {
		t.Errorf("%+v", d)
	}
}

// regionRow is what TestRegionMap reads of a row.
type regionRow struct {
	kind, tensor, dtype, file            string
	size, fileOffset, writes, reads      int64
	bytesWritten, bytesRead, start, read int64
	layer                                int64
}

// regionRows reads a run's region_map.parquet.
func regionRows(t *testing.T, dir string) (rows []regionRow, doubts memtrace.Doubts) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, rundir.RegionsName))
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	about, _ := r.Metadata(memtrace.DoubtsKey)
	if err := json.Unmarshal([]byte(about), &doubts); err != nil {
		t.Error(err)
	}
	for group := range r.Groups() {
		column := func(name string) table.Values {
			v, err := r.Column(group, name)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		kind, tensor, dtype, file := column("region_type"), column("tensor"), column("dtype"), column("file")
		numbers := map[string]table.Values{}
		for _, name := range []string{"size_bytes", "file_offset", "n_writes", "n_reads", "bytes_written", "bytes_read",
			"start_addr", "first_read_ns", "layer"} {
			numbers[name] = column(name)
		}
		for i := range kind.Valid {
			number := func(name string) int64 { return numbers[name].Ints[i] }
			rows = append(rows, regionRow{
				kind.Texts[i], tensor.Texts[i], dtype.Texts[i], file.Texts[i], number("size_bytes"),
				number("file_offset"), number("n_writes"), number("n_reads"),
				number("bytes_written"), number("bytes_read"), number("start_addr"), number("first_read_ns"),
				number("layer"),
			})
		}
	}
	return rows, doubts
}

// TestRegionMap: the table has every tensor of the file, at the place in the file where it is; every execution
// reads each weight of a dense model once, whole; each token's keys and values are written once.
func TestRegionMap(t *testing.T) {
	model := testenv.Model(t)
	file, err := gguf.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	run := llamatap(t, "llama-completion", "--tap-regions", "-m", model, "-p", prompt, "-n", "5", "--temp", "0",
		"-t", "1", "-c", "256", "-no-cnv", "--no-warmup", "--no-repack").good(t)
	rows, doubts := regionRows(t, run.dirs[0])
	if doubts.Executions != 5 || doubts.Unplaced+doubts.Overlaps+doubts.Failed != 0 ||
		!strings.Contains(run.stderr, "regions") {
		t.Errorf("%+v\n%s", doubts, run.stderr)
	}
	tokens := int64(len(tokenize(t, textFile(t, prompt))) + 4)
	weights, caches := 0, 0
	for _, r := range rows {
		switch r.kind {
		case "weight":
			w, ok := file.Tensor(r.tensor)
			if !ok || r.dtype != w.Type.String() || r.size != w.Bytes || r.fileOffset != w.Offset ||
				filepath.Base(r.file) != filepath.Base(model) || r.writes != 0 || r.start == 0 {
				t.Errorf("%+v, in the file it is %v at %d", r, w, w.Offset)
			}
			weights++
			want := doubts.Executions * r.size
			if r.tensor == "token_embd.weight" {
				want = tokens * r.size / w.Shape[1]
			}
			if r.reads != doubts.Executions || r.bytesRead != want || r.read == 0 {
				t.Errorf("%s was read %d times, %d bytes, in %d executions of %d", r.tensor, r.reads, r.bytesRead,
					doubts.Executions, r.size)
			}
		case "kv_cache":
			caches++
			if r.bytesWritten != tokens*r.size/256 || r.writes != doubts.Executions || r.dtype != "f16" {
				t.Errorf("%+v, for %d tokens", r, tokens)
			}
		case "padding", "activation", "compute_buffer", "runtime", "code", "stack", "other":
		default:
			t.Errorf("%+v", r)
		}
	}
	if weights != len(file.Tensors) || caches != 12 {
		t.Errorf("%d of %d weights, %d parts of caches", weights, len(file.Tensors), caches)
	}
}

const tableOfRegions = `
import sys, pandas, pyarrow.parquet as pq, duckdb
name = sys.argv[1]
f = pq.ParquetFile(name)
assert f.schema_arrow.metadata[b"llamatap_schema_version"] == b"2.0", f.schema_arrow.metadata
columns = """region_id region_type name tensor layer start_addr end_addr size_bytes dtype shape device
first_write_ns last_write_ns first_read_ns last_read_ns n_writes n_reads
bytes_written bytes_read""".split()
assert f.schema_arrow.names[:len(columns)] == columns, f.schema_arrow.names
types = {n: str(f.schema_arrow.field(n).type) for n in columns}
assert types["start_addr"] == "uint64" and types["size_bytes"] == "int64" and types["layer"] == "int32" and \
    types["name"] == "string" and types["shape"].startswith("list"), types
assert types["first_read_ns"] == "timestamp[ns]" and \
    all(f.schema_arrow.field(n).metadata[b"description"] for n in f.schema_arrow.names), types
d = pandas.read_parquet(name)
assert d.region_id.is_unique and ((d.end_addr - d.start_addr).dropna() == d.size_bytes[d.start_addr.notna()]).all()
w = d[d.tensor == "blk.0.ffn_up.weight"].iloc[0]
assert list(w["shape"]) == [256, 768] and w.region_type == "weight" and \
    w.first_write_ns is pandas.NA or pandas.isna(w.first_write_ns), w
assert (d.last_read_ns >= d.first_read_ns).sum() == d.first_read_ns.notna().sum() > 50
rows = duckdb.sql(f"select region_type, count(*), sum(bytes_read) from '{name}' where n_reads > 0 "
    "group by 1 order by 1").fetchall()
print(rows)
`

// TestOthersReadRegions lets pandas, pyarrow and DuckDB read a table.
func TestOthersReadRegions(t *testing.T) {
	testenv.Slow(t)
	python := testenv.NeedPython(t, "pyarrow.parquet", "pandas", "duckdb")
	run := llamatap(t, "run", "--tap-regions", "-p", prompt, "-n", "3", "-t", "1").good(t)
	seen, err := exec.Command(python, "-c", tableOfRegions,
		filepath.Join(run.dirs[0], rundir.RegionsName)).CombinedOutput()
	if err != nil || !strings.Contains(string(seen), "('weight', 57,") {
		t.Errorf("%v: %s", err, seen)
	}
}

// TestRegionsOfArchitectures: of no architecture there is an operand without a place, nor where embeddings are
// computed or a model is trained.
func TestRegionsOfArchitectures(t *testing.T) {
	check := func(args ...string) {
		t.Helper()
		run := execOf(t, []string{"--tap-regions"}, args...).good(t)
		if _, d := regionRows(t, run.dirs[0]); d.Executions == 0 || d != (memtrace.Doubts{Executions: d.Executions}) {
			t.Errorf("%q: %+v", args, d)
		}
	}
	archs := []string{"gemma3", "gpt-oss", "mamba"}
	if testenv.Nightly() {
		archs = synth.Archs()
	}
	for _, arch := range archs {
		check("llama-completion", "-m", synthetic(t, arch, gguf.F16, nil), "-p", prompt, "-n", "2", "-t", "1",
			"-c", "256", "-no-cnv", "-fa", "off")
	}
	check("llama-embedding", "-m", synthetic(t, "bert", gguf.F16, nil), "-p", prompt, "-t", "1")
	check("llama-finetune", "-m", testenv.Model(t), "-f", textFile(t, strings.Repeat(long+prompt, 4)), "-t", "1",
		"-c", "64", "-b", "64", "-ub", "64", "-epochs", "1", "--no-repack",
		"-o", filepath.Join(t.TempDir(), "tuned.gguf"))
}
