package tensors

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// attentionNote is what metadata.json says of one layer's attention: which packets make it up, and its constants.
type attentionNote struct {
	Ctx     uint32  `json:"ctx"`
	Layer   int     `json:"layer"`
	Q       string  `json:"q"`
	K       string  `json:"k"`
	Cells   string  `json:"cells"`
	Mask    string  `json:"mask"`
	Sinks   string  `json:"sinks"`
	Map     string  `json:"map"`     // the map itself, where flash attention was off
	QFirst  int     `json:"q_first"` // of a token's row of Q
	Heads   int     `json:"n_head"`  // 0: not recorded
	HeadsKV int     `json:"n_head_kv"`
	HeadDim int     `json:"head_dim"`
	Scale   float64 `json:"scale"`
	MaxBias float64 `json:"max_bias"`
	SoftCap float64 `json:"soft_cap"`
	KType   int     `json:"k_type"`
}

// AllHeads is a MapOptions.Head that chooses every head.
const AllHeads = -1

// MapOptions choose an attention map.
type MapOptions struct {
	Layer, Head int
	Ctx         uint32
	First, End  int64 // token indices First ≤ i < End; End -1 means no end, 0 with First 0 is all
}

// MapRow is one token's attention in one head of one layer.
type MapRow struct {
	Head    int       `json:"-"` // as chosen, or which of all
	Token   int64     `json:"token"`
	Weights []float32 `json:"weights"` // by KV cell
	// CellTokens is the token whose key lies in each cell, -1 for none; absent where the capture does not say
	// (exact mode).
	CellTokens []int64 `json:"cell_tokens,omitempty"`
}

// Map is the attention of the chosen tokens in one head of one layer, or in all of them. It holds no values: every
// method that needs them reads the stream.
type Map struct {
	run     *Run
	note    *attentionNote
	options MapOptions
}

// NewMap finds what the run recorded of a layer's attention. A layer without any is an error that lists those that
// have some.
func NewMap(r *Run, o MapOptions) (*Map, error) {
	if o.End == 0 {
		o.First, o.End = 0, -1
	}
	if o.End < 0 {
		o.End = math.MaxInt64
	}
	note, err := findAttention(r, o)
	if err != nil {
		return nil, err
	}
	return &Map{run: r, note: note, options: o}, nil
}

// EachRow recomputes the attention, or reads it where flash attention was off, and calls fn for each chosen token
// in order, with all heads once per head. The row is valid during the call. Memory holds the layer's keys so far and
// one micro-batch.
func (m *Map) EachRow(fn func(*MapRow) error) error {
	b := mapBuilder{Map: m, fn: fn}
	path, packets := m.run.Path, m.run.Stream
	b.findMoves()
	for i, p := range packets.Packets() {
		if p.Ctx != m.options.Ctx || !m.note.uses(p.Name) {
			continue
		}
		if err := b.addPacket(i, p); err != nil {
			return err
		}
	}
	if err := cmp.Or(packets.Err(), b.flush()); err != nil {
		return err
	}
	if b.rows == 0 {
		return fmt.Errorf(
			"%s: no attention of the chosen tokens was captured: 'llamatap inspect %s --tensor %q' shows what was",
			path, path, m.note.shown())
	}
	return nil
}

// ErrNoAttention is wrapped by NewMap's error for a run that recorded no attention.
var ErrNoAttention = errors.New("no attention was captured")

// attentionNotes are what the run's metadata say of the attention of layers.
func (r *Run) attentionNotes() (notes []attentionNote, err error) {
	if r.Metadata != nil && r.Metadata.Extra["attention"] != nil {
		err = json.Unmarshal(r.Metadata.Extra["attention"], &notes)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the note on attention in metadata.json is damaged: %w: "+
			"'llamatap verify' reports more", r.Path, err)
	}
	if len(notes) == 0 {
		return nil, fmt.Errorf("%s: %w: record with --tap-attention", r.Path, ErrNoAttention)
	}
	return notes, nil
}

// AttentionLayers are the layers of a context whose attention was recorded, each once.
func (r *Run) AttentionLayers(ctx uint32) (layers []int, err error) {
	notes, err := r.attentionNotes()
	for i := range notes {
		if notes[i].Ctx == ctx && !slices.Contains(layers, notes[i].Layer) {
			layers = append(layers, notes[i].Layer)
		}
	}
	return layers, err
}

// findAttention finds the layer's note, or says which layers have one.
func findAttention(r *Run, o MapOptions) (*attentionNote, error) {
	notes, err := r.attentionNotes()
	if err != nil {
		return nil, err
	}
	var layers ggmlhooks.LayerSet
	var found *attentionNote
	for i := range notes {
		if n := &notes[i]; n.Ctx == o.Ctx && n.Layer >= 0 && n.Layer < ggmlhooks.MaxLayers {
			layers.Add(n.Layer)
			if n.Layer == o.Layer {
				if found != nil {
					return nil, fmt.Errorf(
						"%s: layer %d computed its attention in two ways, which this version cannot "+
							"join: record a run without changes of settings", r.Path, o.Layer)
				}
				found = n
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%s: no attention of layer %d in context %d: there are layers %v", r.Path, o.Layer,
			o.Ctx, layers)
	}
	if found.MaxBias != 0 {
		return nil, fmt.Errorf("%s: the attention of layer %d has position biases (ALiBi), which are not recomputed: "+
			"record with --tap-attention exact", r.Path, o.Layer)
	}
	if found.K == "" && found.Map == "" {
		return nil, fmt.Errorf("%s: the keys of layer %d go into no cache, as an encoder's do, and are not captured: "+
			"record with --tap-attention exact", r.Path, o.Layer)
	}
	return found, nil
}

func (n *attentionNote) uses(name string) bool {
	return name != "" && (name == n.Q || name == n.K || name == n.Cells || name == n.Mask || name == n.Sinks ||
		name == n.Map)
}

func (n *attentionNote) shown() string {
	if n.Map != "" {
		return n.Map
	}
	return n.Q
}

// errNotCaptured is for something that a map needs and the stream lacks.
var errNotCaptured = errors.New("not captured")

// mapBuilder gathers the packets of one execution after another.
type mapBuilder struct {
	*Map
	fn     func(*MapRow) error
	exec   uint64
	open   map[string][]pieces // of the current execution, by packet name
	keys   map[int64]key       // by cell
	moves  []move
	sinks  []float32
	rows   int
	buffer []float32
}

// key is what lies in a KV cell.
type key struct {
	row   []float32 // [HeadDim, HeadsKV]
	token int64
	exec  uint64
}

// move is when keys in the cache became others than those that were captured.
type move struct {
	exec   uint64 // the first execution that sees them
	loaded bool   // the program put a saved state back; false: an execution rotated them, as a context shift does
}

func (m *move) String() string {
	if m.loaded {
		return "a saved state may have replaced"
	}
	return "a context shift has moved"
}

// findMoves reads when keys of the context's cache were changed by other things than its tokens.
func (b *mapBuilder) findMoves() {
	var loads []stream.StateLoad
	for l := range b.run.Stream.StateLoads() {
		if l.Ctx == b.options.Ctx {
			loads = append(loads, l)
		}
	}
	for e := range b.run.Stream.Executions() {
		if e.Ctx != b.options.Ctx {
			continue
		}
		for len(loads) > 0 && loads[0].MonoNS < e.MonoNS {
			b.moves, loads = append(b.moves, move{e.Exec, true}), loads[1:]
		}
		if e.Phase == label.PhaseMaintenance {
			b.moves = append(b.moves, move{e.Exec, false})
		}
	}
}

// pieces is one tensor of the execution, put together.
type pieces struct {
	packet stream.Packet
	values []float32
}

// addPacket adds a packet to the current execution.
func (b *mapBuilder) addPacket(i int, p *stream.Packet) error {
	if p.Exec != b.exec {
		if err := b.flush(); err != nil {
			return err
		}
		b.exec, b.open = p.Exec, make(map[string][]pieces)
	}
	if p.Phase == label.PhaseSetup {
		return nil
	}
	if p.SampleTotal > 0 {
		return fmt.Errorf("%s: %s was captured as samples, and a map needs whole rows: record without sampled_slices",
			b.run.Path, p.Name)
	}
	values, err := b.run.Stream.Float32(p, b.buffer)
	b.buffer = values
	if err != nil {
		return fmt.Errorf("packet %d: %w", i, err)
	}
	list := b.open[p.Name]
	if p.Block > 0 && len(list) > 0 {
		last := &list[len(list)-1]
		last.values = append(last.values, values...)
		return nil
	}
	b.open[p.Name] = append(list, pieces{*p, append([]float32(nil), values...)})
	return nil
}

// flush computes the current execution.
func (b *mapBuilder) flush() error {
	if len(b.open) == 0 {
		return nil
	}
	open := b.open
	b.open = nil
	if b.note.Map != "" {
		return b.readMap(open[b.note.Map])
	}
	if s := open[b.note.Sinks]; b.note.Sinks != "" && len(s) > 0 {
		b.sinks = s[0].values
	}
	if err := b.storeKeys(open[b.note.K], open[b.note.Cells]); err != nil {
		return err
	}
	for _, q := range open[b.note.Q] {
		if err := b.compute(q, open[b.note.Mask]); err != nil {
			return err
		}
	}
	return nil
}

// storeKeys puts the written rows of K where the execution put them.
func (b *mapBuilder) storeKeys(rows, cells []pieces) error {
	if len(rows) > 0 && len(cells) == 0 {
		return b.missing("the cells that keys went into (%s)", b.note.Cells)
	}
	if b.keys == nil {
		b.keys = make(map[int64]key)
	}
	if len(rows) > 0 { // it computes embeddings, which are not tokens
		b.moves = slices.DeleteFunc(b.moves, func(m move) bool { return m.exec == b.exec && !m.loaded })
	}
	width := b.note.HeadDim * b.note.HeadsKV
	for _, k := range rows {
		values, err := b.asKept(k)
		if err != nil {
			return err
		}
		first := int(k.packet.TokenFirst - cells[0].packet.TokenFirst)
		for i := 0; i < len(values)/width; i++ {
			if first+i >= len(cells[0].values) {
				return fmt.Errorf(
					"%s: execution %d writes more keys than it has cells for: 'llamatap verify' reports more",
					b.run.Path, b.exec)
			}
			b.keys[int64(cells[0].values[first+i])] = key{values[i*width : (i+1)*width],
				k.packet.TokenFirst + int64(i), b.exec}
		}
	}
	return nil
}

// asKept rounds keys to the type that the cache keeps them in, as far as it is a plain one.
func (b *mapBuilder) asKept(k pieces) ([]float32, error) {
	kept := codec.DTypeOf(b.note.KType)
	if kept != codec.F16 && kept != codec.BF16 || k.packet.DType == kept {
		return k.values, nil
	}
	raw := make([]byte, 0, 4*len(k.values))
	for _, v := range k.values {
		bits := math.Float32bits(v)
		raw = append(raw, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	narrow, _, err := codec.Convert(nil, raw, codec.F32, kept)
	if err != nil {
		return nil, err
	}
	return codec.AppendFloat32(nil, narrow, kept)
}

// compute calls fn for the chosen tokens of one packet of Q.
func (b *mapBuilder) compute(q pieces, masks []pieces) error {
	first := max(b.options.First, q.packet.TokenFirst)
	end := min(b.options.End, q.packet.TokenFirst+int64(q.packet.TokenCount))
	if first >= end {
		return nil
	}
	if len(masks) == 0 {
		return b.missing("the mask (%s)", b.note.Mask)
	}
	mask := masks[0]
	if mask.packet.NE[2]*mask.packet.NE[3] > 1 {
		return fmt.Errorf("%s: the KV cache has %d streams, which this version cannot distinguish: record with "+
			"--tap-attention exact, or one sequence", b.run.Path, mask.packet.NE[2]*mask.packet.NE[3])
	}
	queries := b.note.Heads
	if queries == 0 && q.packet.NE[0] == int64(b.note.HeadDim) {
		queries = int(q.packet.NE[1])
	}
	width := len(q.values) / int(q.packet.TokenCount)
	if queries == 0 || b.note.QFirst+queries*b.note.HeadDim > width {
		return fmt.Errorf("%s: rows of %s have %d values, of which the run does not say which are queries: record it "+
			"again", b.run.Path, b.note.Q, width)
	}
	a := attention{HeadDim: b.note.HeadDim, Heads: queries, KVHeads: b.note.HeadsKV, Tokens: 1,
		Cells: int(mask.packet.NE[0]),
		Scale: b.note.Scale, SoftCap: b.note.SoftCap, Sinks: b.sinks}
	heads, endHead, err := b.heads(a.Heads)
	if err != nil {
		return err
	}
	if b.note.Sinks != "" && b.sinks == nil {
		return b.missing("the attention sinks (%s)", b.note.Sinks)
	}
	row := MapRow{CellTokens: make([]int64, a.Cells)}
	for token := first; token < end; token++ {
		at := int(token - mask.packet.TokenFirst)
		a.Q = q.values[int(token-q.packet.TokenFirst)*width+b.note.QFirst:][:a.HeadDim*a.Heads]
		a.Mask = mask.values[at*a.Cells:][:a.Cells]
		if err := b.fillKeys(&a, row.CellTokens, token); err != nil {
			return err
		}
		row.Token = token
		for row.Head = heads; row.Head < endHead; row.Head++ {
			if row.Weights, err = a.appendRow(row.Weights[:0], row.Head, 0); err != nil {
				return err
			}
			b.rows++
			if err := b.fn(&row); err != nil {
				return err
			}
		}
	}
	return nil
}

// heads are the chosen ones of n, from first to before end.
func (b *mapBuilder) heads(n int) (first, end int, err error) {
	switch head := b.options.Head; {
	case head == AllHeads:
		return 0, n, nil
	case head < 0 || head >= n:
		return 0, 0, fmt.Errorf("%s: there is no head %d: layer %d has heads 0 to %d", b.run.Path, head,
			b.options.Layer, n-1)
	default:
		return head, head + 1, nil
	}
}

// fillKeys lays out the keys of the cells that a token sees.
func (b *mapBuilder) fillKeys(a *attention, tokens []int64, token int64) error {
	width := a.HeadDim * a.KVHeads
	var last move
	for _, m := range b.moves {
		if m.exec <= b.exec {
			last = m
		}
	}
	if len(a.K) != width*a.Cells {
		a.K = make([]float32, width*a.Cells)
	}
	for cell := range a.Cells {
		k, written := b.keys[int64(cell)]
		tokens[cell] = -1
		seen := !math.IsInf(float64(a.Mask[cell]), -1)
		if seen && written && k.exec < last.exec {
			return fmt.Errorf("%s: execution %d: token %d sees keys that %s since they were captured: "+
				"choose tokens before it, or record with --tap-attention exact", b.run.Path, b.exec, token, &last)
		}
		if written {
			tokens[cell] = k.token
			copy(a.K[cell*width:], k.row)
		} else if seen {
			return b.missing("the key in cell %d, which token %d sees: it was computed before the capture, "+
				"or left out by --tap-token; that key", cell, token)
		}
	}
	return nil
}

// readMap hands on rows that llama.cpp itself computed: [cells, tokens, heads, streams]. A cache of several streams
// takes as many tokens of each, one stream after the other.
func (b *mapBuilder) readMap(maps []pieces) error {
	for _, m := range maps {
		cells, tokens, heads := m.packet.NE[0], m.packet.NE[1], m.packet.NE[2]
		first, end, err := b.heads(int(heads))
		if err != nil {
			return err
		}
		for i := range min(tokens*m.packet.NE[3], int64(m.packet.TokenCount)) {
			token := m.packet.TokenFirst + i
			if token < b.options.First || token >= b.options.End {
				continue
			}
			for head := first; head < end; head++ {
				at := ((i/tokens*heads+int64(head))*tokens + i%tokens) * cells
				b.rows++
				if err := b.fn(&MapRow{Head: head, Token: token, Weights: m.values[at : at+cells]}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *mapBuilder) missing(format string, args ...any) error {
	return fmt.Errorf("%s: execution %d: %s %w: record with --tap-attention and without --tap-token", b.run.Path,
		b.exec, fmt.Sprintf(format, args...),
		errNotCaptured)
}
