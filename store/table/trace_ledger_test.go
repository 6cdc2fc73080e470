package table_test

import (
	"fmt"

	"github.com/llamatap/llamatap/store/table"
)

// Source makes rows without end.
type Source interface {
	// Append appends the next rows to a batch: the execution of a graph, or some samples.
	Append(*table.Batch) error
}

// Ledger is the accesses of one token after the other, of a model that is decoded: the same ranges each time, but
// for the cache, where each token writes the next cell and reads those before.
type Ledger struct {
	token         int64
	rows          []access
	writes, reads []int // rows that change with the token
	batch         *table.Batch
	columns       [colWindow + 1][]int64 // of the rows, texts as codes of the batch
	isCache       []bool
}

// access is one row of an execution.
type access struct {
	op, ggmlOp, regionType                               string
	addr, size, region, layer, opSeq, operand, block, id int64
}

const (
	layers    = 16
	cellBytes = 1024
	cells     = 4096
)

// node is an op of a layer: what it writes and reads, as numbers of its weights (from 0), of caches (-1, -2) and
// activations (from 100).
type node struct {
	op   string
	uses []int
}

var nodes = []node{
	{"RMS_NORM", []int{101, 100}}, {"MUL", []int{102, 101, 0}}, {"MUL_MAT", []int{103, 1, 102}},
	{"ROPE", []int{103, 103, 104}},
	{"MUL_MAT", []int{105, 2, 102}}, {"ROPE", []int{105, 105, 104}}, {"MUL_MAT", []int{106, 3, 102}},
	{"SET_ROWS", []int{-1, 105, 107}},
	{"SET_ROWS", []int{-2, 106, 107}}, {"FLASH_ATTN_EXT", []int{108, 103, -1, -2, 109}},
	{"MUL_MAT", []int{110, 4, 108}}, {"ADD", []int{111, 110, 100}},
	{"RMS_NORM", []int{112, 111}}, {"MUL", []int{113, 112, 5}}, {"MUL_MAT", []int{114, 6, 113}},
	{"MUL_MAT", []int{115, 7, 113}},
	{"GLU", []int{116, 114, 115}}, {"MUL_MAT", []int{117, 8, 116}}, {"ADD", []int{100, 117, 111}},
}

var weightBytes = [...]int64{8192, 4456448, 1114112, 1114112, 4456448, 8192, 12032000, 12032000, 12032000}

// NewLedger begins with the first token.
func NewLedger() *Ledger {
	l := &Ledger{}
	opSeq := int64(0)
	for layer := range int64(layers) {
		for _, n := range nodes {
			opSeq++
			for i, use := range n.uses {
				a := l.access(layer, use)
				a.op, a.ggmlOp, a.opSeq, a.operand = "read", n.op, opSeq, int64(i-1)
				if i == 0 {
					a.op = "write"
				}
				if use < 0 && i == 0 {
					l.writes = append(l.writes, len(l.rows))
				} else if use < 0 {
					l.reads = append(l.reads, len(l.rows))
				}
				l.rows = append(l.rows, a)
			}
		}
	}
	return l
}

// access is what a node of a layer uses.
func (l *Ledger) access(layer int64, use int) access {
	const weights, caches, compute = 0x7f0000000000, 0x7e0000000000, 0x7d0000000000
	switch {
	case use < 0:
		region := 1000 + 2*layer + int64(-use-1)
		return access{addr: caches + (region-1000)*cells*cellBytes, regionType: "kv_cache", region: region,
			layer: layer, id: 2}
	case use >= 100:
		return access{addr: compute + int64(use-100)*65536, size: 8192, regionType: "activation",
			region: 2000 + layer*20 + int64(use-100), layer: layer, block: -1, id: 3}
	}
	at := layer * 60 << 20
	for _, n := range weightBytes[:use] {
		at += n
	}
	return access{addr: weights + at, size: weightBytes[use], regionType: "weight", region: layer*9 + int64(use),
		layer: layer, block: -1, id: 1}
}

// prepare makes columns of the rows, for a batch.
func (l *Ledger) prepare(b *table.Batch) {
	l.batch = b
	add := func(column int, v int64) { l.columns[column] = append(l.columns[column], v) }
	for column := range l.columns {
		l.columns[column] = nil
	}
	l.isCache = nil
	for i := range l.rows {
		a := &l.rows[i]
		add(colOp, b.Code(colOp, a.op))
		add(colAddr, a.addr)
		add(colSize, a.size)
		add(colRegion, a.region)
		add(colRegionType, b.Code(colRegionType, a.regionType))
		add(colLayer, a.layer)
		add(colBlock, 0)
		add(colOpSeq, a.opSeq)
		add(colBuffer, a.id)
		add(colOffset, a.addr&(1<<40-1))
		add(colGGMLOp, b.Code(colGGMLOp, a.ggmlOp))
		add(colOperand, a.operand)
		l.isCache = append(l.isCache, a.regionType == "kv_cache")
	}
}

// Append appends the accesses of the next token.
func (l *Ledger) Append(b *table.Batch) error {
	if l.batch != b {
		l.prepare(b)
	}
	l.token++
	cell := l.token % cells
	for _, i := range l.writes {
		l.columns[colAddr][i] = l.rows[i].addr + cell*cellBytes
		l.columns[colOffset][i] = l.columns[colAddr][i] & (1<<40 - 1)
		l.columns[colSize][i] = cellBytes
		l.columns[colBlock][i] = cell / 32
	}
	for _, i := range l.reads {
		l.columns[colSize][i] = (cell + 1) * cellBytes
	}
	n := len(l.rows)
	for _, column := range []int{colOp, colAddr, colSize, colRegion, colRegionType, colLayer, colOpSeq, colBuffer,
		colOffset, colGGMLOp, colOperand} {
		b.Extend(column, l.columns[column], nil)
	}
	b.Extend(colBlock, l.columns[colBlock], l.isCache)
	b.Fill(colTime, 1790000000000000000+l.token*50_000_000, n)
	b.Fill(colToken, l.token, n)
	b.Fill(colSeq, 0, n)
	b.Fill(colGraph, l.token, n)
	b.Fill(colCtx, 0, n)
	b.Fill(colPieces, 1, n)
	b.Fill(colFlags, 0, n)
	b.Fill(colCount, 1, n)
	b.Fill(colPhase, b.Code(colPhase, "generation"), n)
	b.Fill(colDevice, b.Code(colDevice, "CPU"), n)
	b.Fill(colCollector, b.Code(colCollector, "graph"), n)
	b.Fill(colTimeSource, b.Code(colTimeSource, "graph"), n)
	return b.EndRows(n)
}

// Samples is what a processor samples: loads and stores at addresses that nobody can foresee, of several threads,
// one row at a time.
type Samples struct {
	state uint64
	time  int64
	names []string
}

// NewSamples begins with the first one.
func NewSamples() *Samples {
	s := &Samples{state: 1, time: 1790000000000000000}
	for i := range 40 {
		s.names = append(s.names, fmt.Sprintf("ggml_vec_dot_q%d_K_q8_K", i))
	}
	return s
}

// random is a number below n.
func (s *Samples) random(n uint64) uint64 {
	s.state += 0x9E3779B97F4A7C15
	x := s.state
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return (x ^ x>>31) % n
}

// Append appends 1024 samples.
func (s *Samples) Append(b *table.Batch) error {
	for range 1024 {
		s.time += int64(s.random(20000))
		at := s.random(1 << 30)
		layer := int64(at >> 26)
		b.Int(colTime, s.time)
		b.Text(colPhase, "generation")
		b.Text(colOp, [2]string{"read", "write"}[s.random(8)/7])
		b.Int(colAddr, int64(0x7f0000000000+at))
		b.Int(colSize, 8)
		b.Int(colRegion, int64(at>>22))
		b.Text(colRegionType, "weight")
		b.Int(colLayer, layer)
		b.Int(colToken, s.time/50_000_000%100000)
		b.Int(colTID, int64(1000+s.random(8)))
		b.Text(colDevice, "CPU")
		b.Text(colCollector, "perf")
		b.Text(colLevel, [4]string{"L1", "L2", "L3", "DRAM"}[s.random(4)])
		b.Int(colLatency, int64(4+s.random(400)))
		b.Text(colSymbol, s.names[s.random(uint64(len(s.names)))])
		b.Int(colWeight, 2003)
		b.Int(colBuffer, 1)
		b.Int(colOffset, int64(at))
		b.Int(colPieces, 1)
		b.Int(colFlags, 0)
		b.Int(colCount, 1)
		if err := b.EndRow(); err != nil {
			return err
		}
	}
	return nil
}
