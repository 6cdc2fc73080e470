package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

const (
	ggmlF32  = 0
	ggmlQ4_0 = 2
	ggmlI32  = 26
)

// memory is a File that keeps what is written, and fails after limit bytes if limit is not negative.
type memory struct {
	bytes.Buffer
	limit  int
	closed int
}

var errFull = errors.New("no space left")

func (m *memory) Write(p []byte) (int, error) {
	if m.limit >= 0 && m.Len()+len(p) > m.limit {
		n, _ := m.Buffer.Write(p[:m.limit-m.Len()])
		return n, errFull
	}
	return m.Buffer.Write(p)
}
func (m *memory) Sync() error  { return nil }
func (m *memory) Close() error { m.closed++; return nil }

func newMemory() *memory { return &memory{limit: -1} }

func f32(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// capture is a small run: what the writer is given, and what a reader must give back.
type capture struct {
	packets    []Packet
	data       [][]byte
	executions []Execution
}

// newCapture makes tokens executions of one token, each with nodes packets of different kinds.
func newCapture(tokens, nodes int) *capture {
	c := &capture{}
	r := rand.New(rand.NewPCG(7, 8))
	for token := range tokens {
		e := Execution{
			Exec: uint64(10 + token), Graph: uint64(1 + token/3), Ctx: 1, Phase: label.PhaseDecode,
			TimeNS: 1_700_000_000_000_000_000 + int64(token),
			MonoNS: int64(1000 + token), TokenFirst: int64(token),
			Rows: []label.Row{{Index: int64(token), Token: int32(100 + token), Pos: int32(token), Seqs: []int32{0, 3},
				Phase: label.PhaseDecode, Output: token%2 == 0, Request: requestOf(token)}},
		}
		c.executions = append(c.executions, e)
		for node := range nodes {
			p := Packet{
				Name: fmt.Sprintf("l_out-%d", node), Node: fmt.Sprintf("l_out-%d", node), Op: "ADD", Occurrence: 1,
				Layer:     int32(node),
				Component: label.ComponentResidual, Rows: label.RowsTokens, RowDim: 1, Ctx: 1, Graph: e.Graph,
				Exec:      e.Exec,
				NodeIndex: int32(5 * node), Phase: e.Phase, TokenFirst: e.TokenFirst, TokenCount: 1, TimeNS: e.TimeNS +
					5, MonoNS: e.MonoNS + 5,
			}
			data := make([]byte, 0, 64)
			switch node % 3 {
			case 0:
				for range 12 {
					data = append(data, f32(float32(r.NormFloat64()))...)
				}
				p.NE = [4]int64{12, 1, 1, 1}
			case 1: // indices, as of chosen experts
				p.SrcType, p.NE, p.Name = ggmlI32, [4]int64{4, 1, 1, 1}, fmt.Sprintf("ffn_moe_topk-%d#2", node)
				for range 16 {
					data = append(data, byte(r.Uint32()))
				}
				p.Occurrence, p.Block, p.Blocks, p.BlockStart = 2, 1, 3, 4
			case 2: // block-quantised, and a sample
				p.SrcType, p.Layer, p.Rows, p.TokenFirst = ggmlQ4_0, label.NoLayer, label.RowsNone, -1
				p.NE, p.SampleSeed, p.SampleTotal = [4]int64{36, 1, 1, 1}, math.MaxUint64, 99
				data = append(data, bytes.Repeat([]byte{byte(node), byte(token)}, 18)...)
			}
			c.packets, c.data = append(c.packets, p), append(c.data, data)
		}
	}
	return c
}

// requestOf is the request of a token: of the first two none is known, then every fourth begins one.
func requestOf(token int) int32 {
	if token < 2 {
		return label.RequestUnknown
	}
	return int32(token-2) / 4
}

// write pours the capture into a writer, with all other kinds of records in between.
func (c *capture) write(t testing.TB, w *Writer) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := 0
	for i := range c.executions {
		if n := requestOf(i); n != label.RequestUnknown && n != requestOf(i-1) {
			// of a sequence that is never the first
			check(w.AppendRequest(label.RequestBegin{Ctx: 1, Seq: 3, Number: 77}))
			check(w.AppendRequest(label.RequestBegin{Ctx: 1, Number: n, Cause: label.RequestMemory}))
			check(w.AppendRequest(label.RequestBegin{Ctx: 2, Number: 78}))
		}
		check(w.AppendExecution(&c.executions[i]))
		for ; at < len(c.packets) && c.packets[at].Exec == c.executions[i].Exec; at++ {
			check(w.Append(&c.packets[at], c.data[at], nil))
		}
		check(w.Commit())
	}
	check(w.AppendLoss(Loss{Cause: "queue full", Packets: 2, Bytes: 100, FirstExec: 11, LastExec: 12}))
	check(w.AppendLoss(Loss{Cause: "queue full", Packets: 1, Bytes: 50, FirstExec: 15, LastExec: 15}))
	check(w.AppendResolution(Resolution{Ctx: 1, FirstExec: 10, LastExec: 10, Phase: label.PhaseSetup}))
}

// files writes the capture and returns both files.
func (c *capture) files(t testing.TB, o Options) (stream, index []byte) {
	t.Helper()
	s, x := newMemory(), newMemory()
	w, err := New(s, x, o)
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Bytes(), x.Bytes()
}

func open(t testing.TB, stream, index []byte) *Reader {
	t.Helper()
	r, err := newMemoryReader(bytes.NewReader(stream), int64(len(stream)), index)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// stored is what must come back for data that was given to the writer.
func stored(t testing.TB, p *Packet, data []byte, target codec.DType) ([]byte, codec.DType) {
	t.Helper()
	from := codec.DTypeOf(p.SrcType)
	if from != codec.F32 {
		return data, from
	}
	out, _, err := codec.Convert(nil, data, from, target)
	if err != nil {
		t.Fatal(err)
	}
	return out, target
}

// same compares packet i of a reader with what was written.
func (c *capture) same(t testing.TB, r *Reader, i int, p *Packet, target codec.DType, id codec.ID) {
	t.Helper()
	want := c.packets[i]
	data, dtype := stored(t, &want, c.data[i], target)
	want.SrcBytes, want.RawBytes, want.DType, want.Codec = int64(len(c.data[i])), int64(len(data)), dtype, id
	want.Offset, want.Stored, want.CRC = p.Offset, p.Stored, p.CRC
	if want.Exec == 10 {
		want.Phase = label.PhaseSetup // by the resolution
	}
	if *p != want {
		t.Fatalf("packet %d is\n%+v, want\n%+v", i, *p, want)
	}
	got, err := r.ReadInto(p, nil)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("packet %d holds %x, %v; want %x", i, got, err, data)
	}
}

func TestRoundTrip(t *testing.T) {
	c := newCapture(9, 7)
	for _, id := range []codec.ID{codec.None, codec.LZ4, codec.Zstd, codec.ZstdShuffle} {
		for _, dtype := range []codec.DType{codec.F32, codec.F16, codec.BF16} {
			for _, workers := range []int{1, 3} {
				t.Run(fmt.Sprint(id, dtype, workers), func(t *testing.T) {
					stream, index := c.files(t, Options{Codec: id, DType: dtype, Workers: workers})
					r := open(t, stream, index)
					c.checkAll(t, r, dtype, id)
					if err := r.Verify(nil); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

func (c *capture) checkAll(t *testing.T, r *Reader, dtype codec.DType, id codec.ID) {
	t.Helper()
	if r.Len() != len(c.packets) || len(r.Info().Damage) != 0 || r.Info().Assumed != "" {
		t.Fatalf("%d packets, damage %v, assumed %q", r.Len(), r.Info().Damage, r.Info().Assumed)
	}
	for i, p := range r.Packets() {
		c.same(t, r, i, p, dtype, id)
	}
	n := 0
	for e := range r.Executions() {
		want := c.executions[n]
		if n == 0 {
			want.Phase = label.PhaseSetup
			want.Rows = []label.Row{want.Rows[0]}
			want.Rows[0].Phase = label.PhaseSetup
		}
		if fmt.Sprint(*e) != fmt.Sprint(want) {
			t.Errorf("execution %d is\n%v, want\n%v", n, *e, want)
		}
		rows, ok := r.Rows(e.Exec)
		if !ok || fmt.Sprint(rows) != fmt.Sprint(want.Rows) {
			t.Errorf("rows of execution %d: %v %v", e.Exec, rows, ok)
		}
		n++
	}
	if _, ok := r.Rows(9999); ok || n != len(c.executions) {
		t.Errorf("%d executions of %d", n, len(c.executions))
	}
	want := Loss{Cause: "queue full", Packets: 3, Bytes: 150, FirstExec: 11, LastExec: 15}
	if l := r.Info().Losses; len(l) != 1 || l[0] != want {
		t.Errorf("losses %+v, want %+v", l, want)
	}
}

// Bytes that STRAP-LLM itself writes.
func TestStrapVectors(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float32
		want   []byte
	}{
		{"layer1", []float32{1, -2, 0.5}, []byte("\x00\x06\x00\x00\x00\x06layer1\x00\x3c\x00\xc0\x00\x38")},
		{"", []float32{0, 65504}, []byte("\x00\x00\x00\x00\x00\x04\x00\x00\xff\x7b")},
		{"blk.0.attn_norm", []float32{1.0 / 3}, []byte("\x00\x0f\x00\x00\x00\x02blk.0.attn_norm\x55\x35")},
	} {
		one := &capture{packets: []Packet{{Name: c.name}}, data: [][]byte{f32(c.values...)}}
		got, _ := one.filesOnly(t, Options{})
		if !bytes.Equal(got, c.want) {
			t.Errorf("%q: %x, want %x", c.name, got, c.want)
		}
		r, err := newForeign(bytes.NewReader(c.want), int64(len(c.want)))
		if err != nil || r.Len() != 1 || r.Info().Assumed == "" {
			t.Fatalf("%q: %v", c.name, err)
		}
		for _, p := range r.Packets() {
			values, err := r.Float32(p, nil)
			if err != nil || p.Name != c.name || len(values) != len(c.values) {
				t.Fatalf("%q: %q %v %v", c.name, p.Name, values, err)
			}
			for i, v := range values {
				if math.Abs(float64(v-c.values[i])) > 1e-4 {
					t.Errorf("%q: %v, want %v", c.name, values, c.values)
				}
			}
		}
	}
}

// filesOnly writes only the packets.
func (c *capture) filesOnly(t testing.TB, o Options) (stream, index []byte) {
	t.Helper()
	s, x := newMemory(), newMemory()
	w, err := New(s, x, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.packets {
		if err := w.Append(&c.packets[i], c.data[i], nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Bytes(), x.Bytes()
}

func TestForeign(t *testing.T) {
	c := newCapture(5, 1) // F32 only
	for _, id := range []codec.ID{codec.None, codec.LZ4, codec.Zstd} {
		stream, _ := c.filesOnly(t, Options{Codec: id})
		for cut := range len(stream) + 1 {
			r, err := newForeign(bytes.NewReader(stream[:cut]), int64(cut))
			if err != nil {
				t.Fatal(err)
			}
			end := int64(0)
			for i, p := range r.Packets() {
				got, err := r.ReadInto(p, nil)
				want, _ := stored(t, &c.packets[i], c.data[i], codec.F16)
				if err != nil || !bytes.Equal(got, want) || p.Codec != id || p.RawBytes != int64(len(want)) {
					t.Fatalf("%v cut at %d: packet %d: %v %+v", id, cut, i, err, p)
				}
				end = p.Offset + packetHeader + int64(len(p.Name)) + p.Stored
			}
			if torn := len(r.Info().Damage) > 0; torn != (end < int64(cut)) {
				t.Fatalf("%v cut at %d: packets end at %d, damage %v", id, cut, end, r.Info().Damage)
			}
		}
	}
}

// Many packets of very different sizes through many workers come out in their order, each released once.
func TestOrder(t *testing.T) {
	for _, o := range []Options{{Workers: 1}, {Workers: 4, Queue: 5},
		{Workers: 8, Codec: codec.LZ4, MemoryBound: 1 << 16}} {
		s, x := newMemory(), newMemory()
		w, err := New(s, x, o)
		if err != nil {
			t.Fatal(err)
		}
		const n = 3000
		released := make([]atomic.Int32, n)
		r := rand.New(rand.NewPCG(1, 1))
		for i := range n {
			data := make([]byte, 4*r.IntN(100))
			if i%97 == 0 {
				data = make([]byte, 200<<10)
			}
			for j := range data {
				data[j] = byte(i)
			}
			if err := w.Append(&Packet{Name: fmt.Sprint(i % 50), SrcType: ggmlI32, Exec: uint64(i)}, data, func() {
				for j := range data { // whoever reads it after the release shows here, and to the race detector
					data[j] = 0xee
				}
				released[i].Add(1)
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		reader := open(t, s.Bytes(), x.Bytes())
		for i, p := range reader.Packets() {
			raw, err := reader.ReadInto(p, nil)
			if err != nil || p.Exec != uint64(i) || bytes.Count(raw, []byte{byte(i)}) != len(raw) {
				t.Fatalf("packet %d: %+v %v", i, p, err)
			}
		}
		for i := range released {
			if released[i].Load() != 1 {
				t.Fatalf("packet %d was released %d times", i, released[i].Load())
			}
		}
		if reader.Len() != n || w.Stats().Packets != n {
			t.Errorf("%d packets, stats %+v", reader.Len(), w.Stats())
		}
	}
}

// Several callers at once: each one's packets stay in its order.
func TestConcurrentCallers(t *testing.T) {
	s, x := newMemory(), newMemory()
	w, err := New(s, x, Options{Workers: 2, Queue: 3})
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for i := range 200 {
				if err := w.Append(&Packet{Name: fmt.Sprint(caller), Exec: uint64(i)}, f32(1), nil); err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					if err := w.Flush(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	callers.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	next := map[string]uint64{}
	for _, p := range open(t, s.Bytes(), x.Bytes()).Packets() {
		if p.Exec != next[p.Name] {
			t.Fatalf("caller %s: packet %d where %d is next", p.Name, p.Exec, next[p.Name])
		}
		next[p.Name]++
	}
}

func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "activations.stream")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, Options{}); err == nil {
		t.Error("a stream was overwritten")
	}
	newCapture(2, 3).write(t, w)
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Append(&Packet{}, nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	stream, index := w.Sums()
	checkSum(t, path, stream)
	checkSum(t, path+IndexSuffix, index)
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if r.Len() != 6 {
		t.Errorf("%d packets", r.Len())
	}
}

func TestOnWorkerStart(t *testing.T) {
	var started atomic.Int32
	w, err := New(newMemory(), newMemory(), Options{Workers: 3, OnWorkerStart: func() { started.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil || started.Load() != 3+2 { // two write and hash
		t.Errorf("%d goroutines started, %v", started.Load(), err)
	}
}

func TestLossesOfConversion(t *testing.T) {
	c := &capture{packets: []Packet{{Name: "x"}}, data: [][]byte{f32(1e9, 1e-20, 1, 0, float32(math.Inf(1)))}}
	stream, index := c.filesOnly(t, Options{})
	r := open(t, stream, index)
	for _, p := range r.Packets() {
		if p.Saturated != 1 || p.Underflow != 1 || p.Elements() != 5 {
			t.Errorf("%+v", p)
		}
	}
	if total := r.Info().Totals; total.Saturated != 1 || total.Underflow != 1 {
		t.Errorf("%+v", total)
	}
}

func TestRefuses(t *testing.T) {
	w, err := New(newMemory(), newMemory(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	released := 0
	for name, c := range map[string]struct {
		p    Packet
		data []byte
	}{
		"name":  {Packet{Name: string(make([]byte, 1<<16))}, nil},
		"odd":   {Packet{Name: "x"}, []byte{1}},
		"shape": {Packet{Name: "x", NE: [4]int64{-1}}, nil},
	} {
		if err := w.Append(&c.p, c.data, func() { released++ }); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := w.Append(&Packet{Name: "good"}, f32(1), func() {}); err != nil || released != 3 {
		t.Errorf("after refusals: %v, %d released", err, released)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for _, o := range []Options{{DType: codec.I32}, {Codec: 99}} {
		if _, err := New(newMemory(), newMemory(), o); err == nil {
			t.Errorf("%+v: accepted", o)
		}
	}
}

// Close ends every worker, also those that waited for memory or a batch when the last item was taken.
func TestCloseEndsWorkers(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	for i := range rounds {
		w, err := New(newMemory(), newMemory(), Options{Workers: 8, MemoryBound: 1 << 14})
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			if err := w.Append(&Packet{Name: "x", SrcType: ggmlI32}, make([]byte, 4096), nil); err != nil {
				t.Fatal(err)
			}
		}
		closed := make(chan error, 1)
		go func() { closed <- w.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(testenv.Patience()):
			t.Fatalf("round %d: Close hangs", i)
		}
	}
}
