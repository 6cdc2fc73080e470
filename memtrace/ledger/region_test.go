package ledger_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/store/table"
)

// Buffers of the bed.
const (
	weights = 1
	cache   = 2
	compute = 3
	device  = 4
)

// strides are those of a tensor that lies in one piece.
func strides(kind gguf.Type, ne [4]int64) (nb [4]uint64) {
	nb[0] = uint64(kind.BlockBytes())
	nb[1] = nb[0] * uint64(ne[0]/kind.BlockValues())
	nb[2], nb[3] = nb[1]*uint64(ne[1]), nb[1]*uint64(ne[1]*ne[2])
	return nb
}

func leaf(name string, kind gguf.Type, buffer, offset uint64, ne ...int64) ggmlhooks.Leaf {
	l := ggmlhooks.Leaf{Name: name, Type: int(kind), NE: [4]int64{1, 1, 1, 1},
		Place: ggmlhooks.Place{Buffer: buffer, Offset: offset}}
	copy(l.NE[:], ne)
	l.NB = strides(kind, l.NE)
	l.Input = buffer == compute
	return l
}

func node(name, op string, src []int32, buffer, offset uint64, ne ...int64) ggmlhooks.Node {
	n := ggmlhooks.Node{
		Name: name, Op: op, Occurrence: 1, Layer: 0, NE: [4]int64{1, 1, 1, 1}, Src: src, Slots: uint16(1<<len(src) - 1),
		Alias: -1, Computed: true,
		Place: ggmlhooks.Place{Buffer: buffer, Offset: offset},
	}
	copy(n.NE[:], ne)
	n.NB = strides(gguf.F32, n.NE)
	return n
}

func view(n ggmlhooks.Node) ggmlhooks.Node {
	n.View, n.Computed = true, false
	return n
}

// graph is one of tokens of a model with experts: rows are looked up, a product is written to a cache and read from
// it, some experts are chosen, and what comes of it lies where the lookup did.
func graph(id uint64, tokens int64) *ggmlhooks.Graph {
	f32, i32 := gguf.F32, gguf.I32
	g := &ggmlhooks.Graph{ID: id, Tokens: int(tokens), Leafs: []ggmlhooks.Leaf{
		leaf("token_embd.weight", f32, weights, 0, 8, 100),
		leaf("inp_tokens", i32, compute, 0, tokens),
		leaf("blk.0.attn_k.weight", f32, weights, 3200, 8, 4),
		leaf("cache_k_l0", f32, cache, 64, 4, 16),
		leaf("k_idxs", gguf.I64, compute, 64, tokens),
		leaf("blk.0.ffn_up_exps.weight", f32, weights, 4096, 8, 2, 3),
		leaf("far.weight", f32, device, 0, 2),
		leaf("blk.0.ffn_up_exps.bias", f32, weights, 4352, 2, 3),
	}}
	ids := node("ids", "ARGSORT", []int32{0}, compute, 512, 2, tokens)
	ids.Type = int(i32)
	g.Nodes = []ggmlhooks.Node{
		node("embd", "GET_ROWS", []int32{-1, -2}, compute, 1024, 8, tokens),
		node("Kcur-0", "MUL_MAT", []int32{-3, 0}, compute, 2048, 4, tokens),
		node("cache_k_l0 (view)", "SET_ROWS", []int32{1, -5, -4}, cache, 64, 4, 16),
		view(node("cache_k_l0 (view)", "VIEW", []int32{-4}, cache, 64, 4, 8)),
		node("kq-0", "MUL_MAT", []int32{3, 1}, compute, 3072, 8, tokens),
		ids,
		node("node_6", "MUL_MAT_ID", []int32{-6, 0, 5}, compute, 1024, 2, 2, tokens),
		view(node("ffn_out-0", "RESHAPE", []int32{6}, compute, 1024, 4, tokens)),
		node("l_out-0", "MUL", []int32{7, -7}, device, 256, 4, tokens),
		node("cast", "CPY", []int32{7, 9}, compute, 5000, 4, tokens),
		node("biased", "ADD_ID", []int32{6, -8, 5}, compute, 6000, 2, 2, tokens),
	}
	g.Nodes[6].Alias, g.Nodes[5].Routing = 7, true
	return g
}

// driven is a recorder with the assembler that drives it.
type driven struct {
	*ggmlhooks.Assembler
	r *ledger.RegionRecorder
}

func (d *driven) Map() *memtrace.RegionMap { return d.r.Map() }
func (d *driven) Doubts() memtrace.Doubts  { return d.r.Doubts() }

// bed is a recorder that knows of buffers.
func bed(t *testing.T, o ledger.RegionOptions) *driven {
	t.Helper()
	recorder := ledger.NewRegionRecorder(o)
	r := &driven{ggmlhooks.NewAssembler(0, recorder), recorder}
	for _, b := range []ggmlhooks.Buffer{
		{ID: weights, MonoNS: 5, Base: 0x10000, Size: 8192, Usage: ggmlhooks.BufferWeights, Host: true, Mapped: true,
			Type: "CPU_Mapped", Device: "CPU", File: "/models/m.gguf", FileOffset: 320},
		{ID: cache, MonoNS: 6, Base: 0x20000, Size: 4096, Host: true, Type: "CPU", Device: "CPU"},
		{ID: compute, MonoNS: 7, Base: 0x30000, Size: 8192, Host: true, Type: "CPU", Device: "CPU"},
		{ID: compute, MonoNS: 7, Base: 0x30000, Size: 8192, Host: true, Type: "CPU", Device: "CPU",
			Usage: ggmlhooks.BufferCompute, Known: true},
		{ID: device, MonoNS: 8, Base: 0x10000, Size: 4096, Type: "RPC0", Device: "RPC0",
			Usage: ggmlhooks.BufferCompute},
	} {
		must(t, r.Buffer(&b))
	}
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run executes a graph, with times of nodes and experts where they are given.
func run(t *testing.T, r *driven, exec, graph uint64, at int64, times []ggmlhooks.NodeTime, experts []int32) {
	t.Helper()
	must(t, r.Exec(&ggmlhooks.Exec{Number: exec, Graph: graph, MonoNS: at}))
	if experts != nil {
		var data []byte
		for _, e := range experts {
			data = binary.LittleEndian.AppendUint32(data, uint32(e))
		}
		released := 0
		must(t, r.Capture(&ggmlhooks.Capture{Exec: exec, Graph: graph, Node: 5, Type: int(gguf.I32),
			For: ggmlhooks.ForRouting, Blocks: 1, Data: data, Release: func() { released++ }}))
		if released != 1 {
			t.Errorf("released %d times", released)
		}
	}
	if times != nil {
		must(t, r.Times(&ggmlhooks.Times{Exec: exec, Graph: graph, BeginNS: at + 10, Nodes: times}))
	}
	must(t, r.ExecEnd(ggmlhooks.ExecEnd{Number: exec, MonoNS: at + 1000, BeginNS: at + 10}))
}

func use(t *testing.T, r *driven, tensor string) memtrace.Use {
	t.Helper()
	for _, region := range r.Map().Regions() {
		if region.Tensor == tensor {
			return region.Use
		}
	}
	t.Fatalf("there is no %s", tensor)
	return memtrace.Use{}
}

// TestUse: what an op reads and writes is counted for the regions that its operands lie in, at the time of the
// interval that it was computed in; rows that are looked up, written and chosen, no more.
func TestRegionUse(t *testing.T) {
	r := bed(t, ledger.RegionOptions{})
	must(t, r.Graph(graph(1, 3)))
	run(t, r, 1, 1, 1000, nil, []int32{2, 0, 0, 2, 2, 0})
	must(t, r.Graph(graph(2, 1)))
	run(t, r, 2, 2, 5000, []ggmlhooks.NodeTime{{Node: 1, DoneNS: 100, LeftNS: 110}, {Node: 4, DoneNS: 200, LeftNS: 230},
		{Node: 8, DoneNS: 900, LeftNS: 900}}, nil)
	for tensor, want := range map[string]memtrace.Use{
		"token_embd.weight":   {FirstReadNS: 1010, LastReadNS: 5010, Reads: 2, BytesRead: (3 + 1) * 8 * 4},
		"blk.0.attn_k.weight": {FirstReadNS: 1010, LastReadNS: 5010, Reads: 2, BytesRead: 2 * 8 * 4 * 4},
		"cache_k_l0": {FirstWriteNS: 1010, LastWriteNS: 5120, FirstReadNS: 1010, LastReadNS: 5120,
			Writes: 2, Reads: 2, BytesWritten: (3 + 1) * 4 * 4, BytesRead: 2 * 8 * 4 * 4},
		"blk.0.ffn_up_exps.weight": {FirstReadNS: 1010, LastReadNS: 5240, Reads: 2, BytesRead: (2 + 2) * 8 * 2 * 4},
		"blk.0.ffn_up_exps.bias":   {FirstReadNS: 1010, LastReadNS: 5910, Reads: 2, BytesRead: (2 + 2) * 2 * 4},
		"embd": {FirstWriteNS: 1010, LastWriteNS: 5010, FirstReadNS: 1010, LastReadNS: 5240,
			Writes: 2, Reads: 6, BytesWritten: (3 + 1) * 32, BytesRead: 3 * (3 + 1) * 32},
		"ffn_out-0": {FirstWriteNS: 1010, LastWriteNS: 5240, FirstReadNS: 1010, LastReadNS: 5910,
			Writes: 2, Reads: 6, BytesWritten: (3 + 1) * 16, BytesRead: 3 * (3 + 1) * 16},
		"cast":    {FirstWriteNS: 1010, LastWriteNS: 5910, Writes: 2, BytesWritten: (3 + 1) * 16},
		"l_out-0": {FirstWriteNS: 1010, LastWriteNS: 5240, Writes: 2, BytesWritten: (3 + 1) * 16},
	} {
		if got := use(t, r, tensor); got != want {
			t.Errorf("%s\n%+v, want\n%+v", tensor, got, want)
		}
	}
	if d := r.Doubts(); d != (memtrace.Doubts{Executions: 2}) {
		t.Errorf("%+v", d)
	}
	if h := r.Map().Address(0x20000+64+17, 5500); h.Region.Tensor != "cache_k_l0" || h.Offset != 17 ||
		h.Region.Part != "k" || h.Region.Layer != 0 {
		t.Errorf("%+v", h.Region)
	}
	if h := r.Map().Address(0x30000+3072, 5500); h.Region.Tensor != "kq-0" {
		t.Errorf("%+v", h.Region)
	}
}

// TestUnknownIsNotCounted: of experts that nobody saw being chosen it is not known what was read; a graph that
// failed did nobody knows what.
func TestUnknownIsNotCounted(t *testing.T) {
	r := bed(t, ledger.RegionOptions{})
	g := graph(1, 3)
	g.Nodes = append(g.Nodes, node("lost", "ADD", []int32{8, 8}, 99, 0, 4),
		node("nothing", "CPY", []int32{8, 8}, compute, 9000, 0))
	must(t, r.Graph(g))
	run(t, r, 1, 1, 1000, nil, nil)
	if u := use(t, r, "blk.0.ffn_up_exps.weight"); u.Unknown != 1 || u.BytesRead != 0 || u.Reads != 1 {
		t.Errorf("%+v", u)
	}
	must(t, r.Exec(&ggmlhooks.Exec{Number: 2, Graph: 1, MonoNS: 3000}))
	must(t, r.ExecEnd(ggmlhooks.ExecEnd{Number: 2, MonoNS: 4000, Status: 1}))
	must(t, r.ExecEnd(ggmlhooks.ExecEnd{Number: 77, MonoNS: 4000}))
	if d := r.Doubts(); d != (memtrace.Doubts{Executions: 2, Failed: 1, Unplaced: 1}) {
		t.Errorf("%+v", d)
	}
	if err := r.Exec(&ggmlhooks.Exec{Number: 3, Graph: 5}); !errors.Is(err, ggmlhooks.ErrDesync) {
		t.Error(err)
	}
	must(t, r.BufferEnd(ggmlhooks.BufferEnd{ID: cache, MonoNS: 9000}))
	must(t, r.Graph(graph(2, 1)))
	run(t, r, 4, 2, 9500, nil, nil)
	if d := r.Doubts(); d.Overlaps != 1 || d.Unplaced == 1 {
		t.Errorf("a cache in memory that was freed: %+v", d)
	}
}

// TestTable reads the table: the weights that no op reads are there, padding is reported, memory of a device has no
// address.
func TestRegionTable(t *testing.T) {
	model := &gguf.File{Tensors: []gguf.Tensor{
		{Name: "token_embd.weight", Type: gguf.F32, Shape: []int64{8, 100}, Offset: 320, Bytes: 3200},
		{Name: "v.blk.7.unused.weight", Type: gguf.F32, Shape: []int64{50}, Offset: 320 + 3328, Bytes: 200},
		{Name: "tail.bias", Type: gguf.F32, Shape: []int64{8}, Offset: 320 + 3584, Bytes: 32},
		{Name: "another.file's", Type: gguf.F32, Shape: []int64{8}, Offset: 160, Bytes: 32},
	}}
	var out bytes.Buffer
	r := bed(t, ledger.RegionOptions{
		Out: &out, UnixOffset: 1e6, Now: func() int64 { return 50 },
		Model: func(path string) (*gguf.File, error) {
			if path != "/models/m.gguf" {
				t.Error(path)
			}
			return model, nil
		},
		Maps: func() (io.Reader, error) {
			return strings.NewReader("00005000-00006000 r-xp 00000000 08:02 1 /bin/x\n"), nil
		},
	})
	must(t, r.Graph(graph(1, 3)))
	run(t, r, 1, 1, 1000, nil, nil)
	must(t, r.BufferEnd(ggmlhooks.BufferEnd{ID: compute, MonoNS: 9000}))
	must(t, errors.Join(r.Close(), r.Close()))
	in, err := table.NewReader(bytes.NewReader(out.Bytes()))
	must(t, err)
	var doubts memtrace.Doubts
	about, _ := in.Metadata(memtrace.DoubtsKey)
	if version, _ := in.Metadata(table.VersionKey); version != table.Version ||
		json.Unmarshal([]byte(about), &doubts) != nil || doubts.Executions != 1 {
		t.Errorf("version %q, %s", version, about)
	}
	column := func(name string) table.Values {
		v, err := in.Column(0, name)
		must(t, err)
		return v
	}
	var rows []string
	for i := range in.Rows() {
		row := ""
		for _, name := range []string{"region_type", "name", "dtype", "kv", "device", "file"} {
			row += column(name).Texts[i] + " "
		}
		for _, name := range []string{"layer", "start_addr", "size_bytes", "n_reads", "bytes_read", "first_read_ns",
			"alloc_ns", "free_ns", "file_offset"} {
			if v := column(name); v.Valid[i] {
				row += " " + json.Number(jsonInt(v.Ints[i])).String()
			} else {
				row += " -"
			}
		}
		rows = append(rows, row)
	}
	want := []string{
		"weight token_embd.weight f32  CPU /models/m.gguf  - 65536 3200 1 96 1001010 1000005 - 320",
		"weight CPU_Mapped buffer 1   CPU /models/m.gguf  - 69152 480 0 0 - 1000005 - 3936",
		"weight v.blk.7.unused.weight f32  CPU /models/m.gguf  7 68864 200 0 0 - 1000005 - 3648",
		"code /bin/x      - 20480 4096 0 0 - 1000050 - -",
		"padding CPU_Mapped buffer 1   CPU /models/m.gguf  - 69064 56 0 0 - 1000005 - 3848",
		"kv_cache cache_k_l0 f32 k CPU   0 131136 256 1 128 1001010 1000006 - -",
		"weight blk.0.ffn_up_exps.weight f32  CPU /models/m.gguf  0 69632 192 1 - 1001010 1000005 - 4416",
		"activation far.weight f32  RPC0   - - 8 1 8 1001010 1000008 - -",
		"activation embd f32  CPU   0 197632 96 3 288 1001010 1000007 1009000 -",
	}
	for _, w := range want {
		if !strings.Contains("\n"+strings.Join(rows, "\n")+"\n", "\n"+w+"\n") {
			t.Errorf("there is no row\n%s", w)
		}
	}
	if t.Failed() {
		t.Log("\n" + strings.Join(rows, "\n"))
	}
}

func jsonInt(n int64) string {
	text, _ := json.Marshal(n)
	return string(text)
}

// TestCachesOfContexts: a cache is of the context whose graphs use it; one that two use, as a context may be given
// another one's memory, is of neither.
func TestCachesOfContexts(t *testing.T) {
	r := bed(t, ledger.RegionOptions{})
	ctx := func() int {
		for _, region := range r.Map().Regions() {
			if region.Tensor == "cache_k_l0" {
				return region.Ctx
			}
		}
		return -2
	}
	for i, c := range []struct {
		graph uint32
		want  int
	}{{3, 3}, {3, 3}, {4, -1}, {3, -1}} {
		g := graph(uint64(i+1), 1)
		g.Ctx = c.graph
		must(t, r.Graph(g))
		if got := ctx(); got != c.want {
			t.Errorf("graph %d, of context %d: the cache is of %d, want %d", i+1, c.graph, got, c.want)
		}
	}
	for _, region := range r.Map().Regions() {
		if region.Type == memtrace.Weight && region.Ctx != -1 {
			t.Errorf("%s is of context %d", region.Name, region.Ctx)
		}
	}
}

// TestNoAllocation: an execution of a known graph costs none.
func TestRegionsWithoutAllocation(t *testing.T) {
	r := bed(t, ledger.RegionOptions{})
	must(t, r.Graph(graph(1, 1)))
	times := []ggmlhooks.NodeTime{{Node: 1, DoneNS: 100, LeftNS: 110}}
	exec := uint64(0)
	step := func() {
		exec++
		at := int64(exec) * 5000
		r.Exec(&ggmlhooks.Exec{Number: exec, Graph: 1, MonoNS: at})
		r.Times(&ggmlhooks.Times{Exec: exec, Graph: 1, BeginNS: at, Nodes: times})
		r.ExecEnd(ggmlhooks.ExecEnd{Number: exec, MonoNS: at + 10, BeginNS: at})
	}
	for range 10000 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations per execution", n)
	}
}

// FuzzGraph: whatever a graph says of places and shapes, nothing breaks, and what is counted is not negative.
func FuzzRegions(f *testing.F) {
	f.Add(uint64(0), int64(3), int64(8), uint8(0), uint8(1))
	f.Add(uint64(1<<63), int64(-1), int64(1<<62), uint8(39), uint8(200))
	f.Fuzz(func(t *testing.T, offset uint64, tokens, width int64, kind, which uint8) {
		r := bed(t, ledger.RegionOptions{})
		g := graph(1, tokens)
		n := &g.Nodes[int(which)%len(g.Nodes)]
		n.Offset, n.NE[0], n.Type = offset, width, int(kind)
		l := &g.Leafs[int(which)%len(g.Leafs)]
		l.Offset, l.NE[1], l.Type, l.NB[1] = offset, width, int(kind), offset
		must(t, r.Graph(g))
		run(t, r, 1, 1, 1000, nil, nil)
		for _, region := range r.Map().Regions() {
			r.Map().At(region.Buffer, region.Offset)
			r.Map().Layouts.Of(1).At(region.Buffer, region.Offset, 3)
		}
	})
}
