package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// Buffers of a bed, by what lies in them.
const (
	inWeights = 1 + iota
	inCache
	inCompute
	inDevice
)

// bed is a recorder with a map, and the files that it writes.
type bed struct {
	*ggmlhooks.Assembler
	r     *Recorder
	t     *testing.T
	map_  *RegionRecorder
	table *Table
	parts []*memory
	exec  uint64
}

type memory struct{ bytes.Buffer }

func (*memory) Close() error { return nil }

// Create makes a part.
func (b *bed) Create(string) (io.WriteCloser, error) {
	b.parts = append(b.parts, &memory{})
	return b.parts[len(b.parts)-1], nil
}

// Rename says nothing that is needed here.
func (*bed) Rename(string, string) error { return nil }

func newBed(t *testing.T, o Options) *bed {
	t.Helper()
	b := &bed{t: t, map_: NewRegionRecorder(RegionOptions{})}
	o.Map, o.UnixOffset = b.map_.Map(), 1e6
	b.table = NewTable(TableOptions{Folder: b})
	o.Table = b.table
	if o.Block == 0 {
		o.Block = 4
	}
	b.r = NewRecorder(o)
	b.Assembler = ggmlhooks.NewAssembler(0, b.map_, b.r)
	for _, buffer := range []ggmlhooks.Buffer{
		{ID: inWeights, MonoNS: 5, Base: 0x10000, Size: 8192, Host: true, Mapped: true, Type: "CPU_Mapped",
			Device: "CPU"},
		{ID: inWeights, MonoNS: 5, Base: 0x10000, Size: 8192, Host: true, Mapped: true, Type: "CPU_Mapped",
			Device: "CPU", Usage: ggmlhooks.BufferWeights, Known: true},
		{ID: inCache, MonoNS: 6, Base: 0x20000, Size: 4096, Host: true, Type: "CPU", Device: "CPU"},
		{ID: inCompute, MonoNS: 7, Base: 0x30000, Size: 8192, Host: true, Type: "CPU", Device: "CPU",
			Usage: ggmlhooks.BufferCompute},
		{ID: inDevice, MonoNS: 8, Base: 0x10000, Size: 4096, Type: "RPC0", Device: "RPC0",
			Usage: ggmlhooks.BufferCompute},
	} {
		b.must(b.Buffer(&buffer))
	}
	return b
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) graph(g *ggmlhooks.Graph) {
	b.t.Helper()
	b.must(b.Graph(g))
}

// batchOf is an execution of a graph.
type batchOf struct {
	graph       uint64
	at          int64
	tokens      []int32
	cells       []int64
	ranges      []ggmlhooks.CellRange
	experts     []int32
	times       []ggmlhooks.NodeTime
	provisional bool
	status      int
}

// run executes a graph, whose positions follow each other from at/1000 on.
func (b *bed) run(s batchOf) {
	b.t.Helper()
	b.exec++
	e := ggmlhooks.Exec{Number: b.exec, Graph: s.graph, Call: b.exec, MonoNS: s.at, TokenFirst: s.at / 1000,
		Tokens: s.tokens, Provisional: s.provisional}
	call := ggmlhooks.Call{Number: b.exec, Kind: ggmlhooks.CallDecode}
	for i, token := range s.tokens {
		pos := int32(s.at/1000) + int32(i)
		e.Pos = append(e.Pos, pos)
		call.Rows = append(call.Rows, ggmlhooks.CallRow{Token: token, Pos: pos, Seqs: []int32{int32(i % 2)}})
	}
	if len(s.tokens) == 0 {
		e.TokenFirst = -1
	} else {
		b.must(b.Call(&call))
	}
	b.must(b.Exec(&e))
	if s.cells != nil {
		b.must(b.Input(&ggmlhooks.Input{Exec: b.exec, Graph: s.graph, Leaf: leafCells, Kind: ggmlhooks.InputCells,
			Values: s.cells}))
	}
	if s.ranges != nil {
		b.must(b.Input(&ggmlhooks.Input{Exec: b.exec, Graph: s.graph, Leaf: leafMask, Kind: ggmlhooks.InputMask,
			Ranges: s.ranges}))
	}
	if s.experts != nil {
		var data []byte
		for _, e := range s.experts {
			data = binary.LittleEndian.AppendUint32(data, uint32(e))
		}
		b.must(b.Capture(&ggmlhooks.Capture{Exec: b.exec, Graph: s.graph, Node: nodeIDs, Type: int(gguf.I32),
			For: ggmlhooks.ForRouting, Blocks: 1, Data: data, Release: func() {}}))
	}
	if s.times != nil {
		b.must(b.Times(&ggmlhooks.Times{Exec: b.exec, Graph: s.graph, BeginNS: s.at + 10, Nodes: s.times}))
	}
	end := ggmlhooks.ExecEnd{Number: b.exec, MonoNS: s.at + 900, BeginNS: s.at + 10, Status: s.status}
	b.must(b.ExecEnd(end))
}

// tensor places a tensor of F32, unless kind says otherwise, in one piece.
func tensor(kind gguf.Type, buffer, offset uint64, ne ...int64) (leaf ggmlhooks.Leaf) {
	leaf.NE, leaf.Type, leaf.Place = [4]int64{1, 1, 1, 1}, int(kind), ggmlhooks.Place{Buffer: buffer, Offset: offset}
	copy(leaf.NE[:], ne)
	leaf.NB[0] = uint64(kind.BlockBytes())
	leaf.NB[1] = leaf.NB[0] * uint64(leaf.NE[0]/kind.BlockValues())
	leaf.NB[2] = leaf.NB[1] * uint64(leaf.NE[1])
	leaf.NB[3] = leaf.NB[2] * uint64(leaf.NE[2])
	leaf.Input = buffer == inCompute
	return leaf
}

// sketch is a graph that is being drawn.
type sketch struct{ *ggmlhooks.Graph }

func (s sketch) leaf(name string, t ggmlhooks.Leaf) int32 {
	t.Name = name
	s.Leafs = append(s.Leafs, t)
	return int32(-len(s.Leafs))
}

func (s sketch) node(name, op string, at ggmlhooks.Leaf, src ...int32) int32 {
	n := ggmlhooks.Node{Name: name, Op: op, Occurrence: 1, NE: at.NE, NB: at.NB, Type: at.Type, Place: at.Place,
		Alias: -1, Src: src, Slots: 1<<len(src) - 1}
	n.View = slices.Contains([]string{"VIEW", "RESHAPE", "PERMUTE"}, op)
	n.Computed = !n.View
	s.Nodes = append(s.Nodes, n)
	return int32(len(s.Nodes) - 1)
}

// Leafs and nodes that belong to an execution.
const (
	leafCells = 3
	leafMask  = 4
	nodeIDs   = 9
)

// layer draws a graph of one layer: rows are looked up, keys are written to a cache of 16 cells and read by a mask
// of 8, two experts of three are used, and what comes of it is multiplied with something on a device.
func layer(id uint64, tokens int64) *ggmlhooks.Graph {
	f32, i32 := gguf.F32, gguf.I32
	s := sketch{&ggmlhooks.Graph{ID: id, Tokens: int(tokens)}}
	embd := s.leaf("token_embd.weight", tensor(f32, inWeights, 0, 8, 100))
	ids := s.leaf("inp_tokens", tensor(i32, inCompute, 0, tokens))
	cache := s.leaf("cache_k_l0", tensor(f32, inCache, 64, 4, 16))
	idxs := s.leaf("k_idxs", tensor(gguf.I64, inCompute, 64, tokens))
	mask := s.leaf("kq_mask", tensor(f32, inCompute, 128, 8, tokens))
	k := s.leaf("blk.0.attn_k.weight", tensor(f32, inWeights, 3200, 8, 4))
	up := s.leaf("blk.0.ffn_up_exps.weight", tensor(f32, inWeights, 4096, 8, 2, 3))
	far := s.leaf("far.weight", tensor(f32, inDevice, 0, 2))

	x := s.node("embd", "GET_ROWS", tensor(f32, inCompute, 1024, 8, tokens), embd, ids)                        // 0
	key := s.node("Kcur-0", "MUL_MAT", tensor(f32, inCompute, 2048, 4, tokens), k, x)                          // 1
	s.node("cache_k_l0 (view)", "SET_ROWS", tensor(f32, inCache, 64, 4, 16), key, idxs, cache)                 // 2
	keys := s.node("cache_k_l0 (view)", "VIEW", tensor(f32, inCache, 64, 4, 8), cache)                         // 3
	kq := s.node("kq-0", "MUL_MAT", tensor(f32, inCompute, 3072, 8, tokens), keys, key)                        // 4
	soft := s.node("kq_soft_max-0", "SOFT_MAX", tensor(f32, inCompute, 3072, 8, tokens), kq, mask)             // 5
	sum := s.node("ffn_inp-0", "ADD", tensor(f32, inCompute, 1024, 8, tokens), x, soft)                        // 6
	scale := s.node("ffn_norm-0", "SCALE", tensor(f32, inCompute, 3584, 8, tokens), sum)                       // 7
	s.node("nothing", "CPY", tensor(f32, inCompute, 7000, 0, tokens), scale)                                   // 8
	chosen := s.node("ffn_moe_topk-0", "ARGSORT", tensor(i32, inCompute, 512, 2, tokens), scale)               // 9
	out := s.node("ffn_moe_up-0", "MUL_MAT_ID", tensor(f32, inCompute, 4096, 2, 2, tokens), up, scale, chosen) // 10
	flat := s.node("ffn_out-0", "RESHAPE", tensor(f32, inCompute, 4096, 4, tokens), out)                       // 11
	s.node("l_out-0", "MUL", tensor(f32, inDevice, 256, 4, tokens), flat, far)                                 // 12
	for i := range s.Nodes {
		s.Nodes[i].Layer = 0
	}
	s.Nodes[0].Layer = ggmlhooks.NoLayer
	return s.Graph
}

// columns are those that rows are printed by.
var columns = []string{"op_seq", "operand", "op", "region_type", "offset", "size", "pieces", "stride", "flags",
	"token_index", "seq_id", "kv_block"}

// rows ends the recording, and returns the rows, printed so, in order.
func (b *bed) rows(names ...string) (rows []string) {
	b.t.Helper()
	if names == nil {
		names = columns
	}
	b.must(errors.Join(b.Close(), b.Close(), b.table.Close()))
	for _, part := range b.parts {
		r, err := table.NewReader(bytes.NewReader(part.Bytes()))
		b.must(err)
		for group := range r.Groups() {
			all := map[string]table.Values{}
			for _, c := range memtrace.TraceColumns() {
				v, err := r.Column(group, c.Name)
				b.must(err)
				all[c.Name] = v
			}
			for i := range all["op"].Valid {
				var words []string
				for _, name := range names {
					words = append(words, word(all[name], i))
				}
				rows = append(rows, strings.Join(words, " "))
			}
		}
	}
	return rows
}

// word is a value as a row holds it.
func word(v table.Values, i int) string {
	switch {
	case !v.Valid[i]:
		return "-"
	case v.Texts != nil:
		return v.Texts[i]
	}
	return fmt.Sprint(v.Ints[i])
}
