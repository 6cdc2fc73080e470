package ledger

import (
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
)

// TestCopies: a copy of experts to memory that a graph reads is a read and a write of the execution within which, or
// before which, it was made. Those of one that failed have no rows, as all that it did; what no graph needed is
// counted.
func TestCopies(t *testing.T) {
	b := newBed(t, Options{})
	const slots = 9
	b.must(b.Buffer(&ggmlhooks.Buffer{ID: slots, MonoNS: 8, Size: 4096, Type: "RPC0", Device: "RPC0",
		Usage: ggmlhooks.BufferWeights}))
	g := layer(1, 2)
	g.Leafs[7] = tensor(gguf.F32, slots, 0, 2, 64)
	g.Leafs[7].Name = "moe_cache.0.blk.0.ffn_up_exps.weight"
	b.graph(g)
	copied := func(ns int64, addr, offset, size uint64) {
		b.must(b.Moved(&ggmlhooks.Moved{Buffer: slots, Offset: offset, Bytes: size, Addr: addr, BegunNS: ns,
			MonoNS: ns, Copy: true}))
	}
	run := func(at int64, status int) {
		b.run(batchOf{graph: 1, at: at, tokens: []int32{1, 2}, cells: []int64{0, 1}, experts: []int32{0, 1},
			status: status})
	}
	const experts = 0x10000 + 4096
	// within the first
	copied(1100, experts+64, 0, 128)
	copied(1200, 0x30000+16, 448, 64)                                                                 // of no weight
	for _, other := range []ggmlhooks.Moved{{Buffer: slots, Bytes: 64, Addr: experts, BegunNS: 1300}, // the move itself
		{Buffer: inDevice, Bytes: 64, Addr: experts, BegunNS: 1300, Copy: true}} { // to no cache
		b.must(b.Moved(&other))
	}
	run(1000, 0)
	copied(2100, experts, 256, 64) // within one that fails
	run(2000, 1)
	copied(2950, experts, 320, 64) // before the last
	run(3000, 0)
	copied(9000, experts, 384, 64) // behind it
	rows := b.rows("graph_seq", "op", "region_type", "offset", "size", "flags", "op_seq", "time_source", "layer")
	got := slices.DeleteFunc(rows, func(row string) bool { return !strings.Contains(row, " copy ") })
	if want := []string{
		"1 read weight 4160 128 128 - copy 0", "1 write weight 0 128 128 - copy 0",
		"3 read weight 4096 64 128 - copy 0", "3 write weight 320 64 128 - copy 0",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if d := b.r.Doubts(); d.Unplaced != 1 || d.Failed != 1 {
		t.Errorf("%+v", d)
	}
}
