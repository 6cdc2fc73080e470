package tensors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// DiffOptions say what is compared.
type DiffOptions struct {
	Filter Filter // of the first run's tensors
	// Progress, if any, is called with the number of tensors that were compared and of all.
	Progress func(done, total int64)
}

// RowDiff is how one tensor differs for one token.
type RowDiff struct {
	Tensor  string `json:"tensor"`
	Layer   int    `json:"layer"`
	Ctx     uint32 `json:"ctx"`
	Token   int64  `json:"token_index"` // in the first run
	Other   int64  `json:"other_token_index"`
	ID      int32  `json:"token_id"`
	Seq     int32  `json:"seq_id"`
	Request int32  `json:"request"` // of the sequence, −1 where it is not known
	Pos     int32  `json:"pos"`
	// KL is KL(a‖b) in nats; of logits alone.
	KL *float64 `json:"kl_divergence,omitempty"`
	Distance
}

// Diff is what two runs have in common and how it differs.
type Diff struct {
	A      string `json:"a"`
	B      string `json:"b"`
	Tokens int    `json:"tokens"` // that both runs have, at the same place and with the same id
	// places where the runs have different tokens; their rows are left out
	OtherID    int           `json:"tokens_differ"`
	OnlyA      int           `json:"tokens_only_a"`
	OnlyB      int           `json:"tokens_only_b"`
	Tensors    int           `json:"tensors"` // compared
	NamesOnlyA []string      `json:"tensors_only_a"`
	NamesOnlyB []string      `json:"tensors_only_b"`
	Skipped    []SkippedDiff `json:"not_compared"`
	Total      Distance      `json:"total"`
	// Logits is there where both runs have logits.
	Logits *LogitsDiff `json:"logits,omitempty"`
}

// SkippedDiff is a tensor, or rows of it, that both runs have and that could not be compared.
type SkippedDiff struct {
	Tensor string `json:"tensor"`
	Rows   int    `json:"rows"`
	Reason string `json:"reason"`
}

// ErrNoTokens occurs when nothing in two runs belongs together.
var ErrNoTokens = errors.New("have no token in common")

// place is where a token stands, in whatever run.
type place struct {
	ctx     uint32
	seq     int32
	request int32
	pos     int32
	nth     int32 // at one place several tokens may have been computed: drafts that were rejected
}

// rowsOf maps each row of a run to its token.
type rowsOf struct {
	places map[int64]place // by token index
	ids    map[int64]int32
	at     map[place]int64
}

// Comparable returns why the rows of a run cannot be compared with those of another one, or nil.
func Comparable(r *Run) error {
	if r.Stream.Info().Assumed != "" {
		return fmt.Errorf("%s: it has no index, and so its rows no tokens: compare recordings of llamatap", r.Path)
	}
	return nil
}

func readRows(r *Run) (*rowsOf, error) {
	if err := Comparable(r); err != nil {
		return nil, err
	}
	of := &rowsOf{places: map[int64]place{}, ids: map[int64]int32{}, at: map[place]int64{}}
	seen := map[place]int32{}
	for e := range r.Stream.Executions() {
		for i := range e.Rows {
			row := &e.Rows[i]
			if row.Phase == label.PhaseSetup {
				continue
			}
			p := place{ctx: e.Ctx, request: row.Request, pos: row.Pos}
			if len(row.Seqs) > 0 {
				p.seq = row.Seqs[0]
			}
			n := seen[p]
			seen[p]++
			p.nth = n
			of.places[row.Index], of.ids[row.Index], of.at[p] = p, row.Token, row.Index
		}
	}
	return of, r.Stream.Err()
}

// pair counts the tokens of two runs and returns, by the first one's token index, the other's.
func (d *Diff) pair(a, b *rowsOf) map[int64]int64 {
	same := map[int64]int64{}
	for at, index := range a.at {
		other, there := b.at[at]
		switch {
		case !there:
			d.OnlyA++
		case a.ids[index] != b.ids[other]:
			d.OtherID++
		default:
			same[index] = other
		}
	}
	d.Tokens = len(same)
	d.OnlyB = len(b.at) - d.Tokens - d.OtherID
	return same
}

// nodeKey is a node as it is found again in another run: by name, op and occurrence in the graph, whatever either
// run selected. An unnamed node, whose name is but its number in the graph, goes by the name of its packets and by
// its layer.
type nodeKey struct {
	ctx        uint32
	name, op   string
	occurrence int   // 0: unnamed
	layer      int32 // of an unnamed node
}

func nodeKeyOf(p *stream.Packet) nodeKey {
	if number, ok := strings.CutPrefix(p.Node, "node_"); ok && strings.Trim(number, "0123456789") == "" {
		return nodeKey{ctx: p.Ctx, name: p.Name, op: p.Op, layer: p.Layer}
	}
	return nodeKey{ctx: p.Ctx, name: p.Node, op: p.Op, occurrence: max(p.Occurrence, 1)}
}

// tensorRows are the packets of one tensor of one context, in the order of their tokens.
type tensorRows struct {
	key     nodeKey
	name    string // of its packets
	layer   int32
	packets []tensorPacket
}

type tensorPacket struct {
	number       int
	first, count int64 // tokens
}

// listTensors lists what can be compared, by name, in the order in which it first comes.
func listTensors(r *Run, f Filter) (all []*tensorRows, byKey map[nodeKey]*tensorRows) {
	byKey = map[nodeKey]*tensorRows{}
	for i, p := range r.Stream.Packets() {
		if !f.Match(p) {
			continue
		}
		key := nodeKeyOf(p)
		t := byKey[key]
		if t == nil {
			t = &tensorRows{key: key, name: p.Name, layer: p.Layer}
			byKey[key] = t
			all = append(all, t)
		}
		t.packets = append(t.packets, tensorPacket{i, p.TokenFirst, int64(p.TokenCount)})
	}
	for _, t := range all {
		slices.SortStableFunc(t.packets, func(a, b tensorPacket) int { return cmp.Compare(a.first, b.first) })
	}
	return all, byKey
}

// find returns the packet that holds a token's row.
func (t *tensorRows) find(token int64) (tensorPacket, bool) {
	i := sort.Search(len(t.packets), func(i int) bool { return t.packets[i].first > token }) - 1
	if i < 0 || token >= t.packets[i].first+t.packets[i].count {
		return tensorPacket{}, false
	}
	return t.packets[i], true
}

// Compare compares two runs row by row and calls fn for each, tensor by tensor, tokens in order. A row of one run
// belongs to that of the other where context, sequence, request, position and token are the same. Values are
// compared as they are stored, widened to float32. Only a few packets are in memory.
func Compare(ctx context.Context, r, other *Run, o DiffOptions, fn func(*RowDiff) error) (*Diff, error) {
	if err := o.Filter.Check(); err != nil {
		return nil, err
	}
	d := &Diff{A: r.Path, B: other.Path, NamesOnlyA: []string{}, NamesOnlyB: []string{}, Skipped: []SkippedDiff{}}
	rowsA, err := readRows(r)
	if err != nil {
		return nil, err
	}
	rowsB, err := readRows(other)
	if err != nil {
		return nil, err
	}
	same := d.pair(rowsA, rowsB)
	if len(same) == 0 {
		return nil, fmt.Errorf("%s and %s %w: they were given other prompts, or other tokenizers cut them", r.Path,
			other.Path, ErrNoTokens)
	}
	all, keysA := listTensors(r, o.Filter)
	allB, keysB := listTensors(other, o.Filter)
	if err := cmp.Or(r.Stream.Err(), other.Stream.Err()); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, r.Unknown(o.Filter)
	}
	d.unpaired(all, allB, keysA, keysB)
	for i, t := range all {
		if o.Progress != nil {
			o.Progress(int64(i), int64(len(all)))
		}
		in := keysB[t.key]
		if in == nil {
			continue
		}
		c := tensorDiff{d: d, rows: rowsA, same: same, fn: fn, name: t.name, a: side{run: r, tensor: t},
			b: side{run: other, tensor: in}}
		if err := c.compare(); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	if d.Logits != nil {
		d.Logits.settle()
	}
	return d, nil
}

// unpaired notes the tensors that only one run has. Two of one name that are different nodes are not compared, and
// it says why.
func (d *Diff) unpaired(all, allB []*tensorRows, keysA, keysB map[nodeKey]*tensorRows) {
	type name struct {
		ctx  uint32
		name string
	}
	left := map[name]*tensorRows{}
	for _, t := range allB {
		if keysA[t.key] == nil {
			left[name{t.key.ctx, t.name}] = t
		}
	}
	for _, t := range all {
		if keysB[t.key] != nil {
			continue
		}
		other := left[name{t.key.ctx, t.name}]
		if other == nil {
			d.NamesOnlyA = append(d.NamesOnlyA, t.name)
			continue
		}
		delete(left, name{t.key.ctx, t.name})
		reason := fmt.Sprintf("it is %s in one run and %s in the other", t.key, other.key)
		d.Skipped = append(d.Skipped, SkippedDiff{t.name, t.rows(), reason})
	}
	for _, t := range allB {
		if left[name{t.key.ctx, t.name}] == t {
			d.NamesOnlyB = append(d.NamesOnlyB, t.name)
		}
	}
}

// String names the node by op and occurrence.
func (k nodeKey) String() string {
	if k.occurrence == 0 {
		return fmt.Sprintf("an unnamed %s of layer %d", k.op, k.layer)
	}
	return fmt.Sprintf("%s %d of %s", k.op, k.occurrence, k.name)
}

// rows is how many rows its packets hold.
func (t *tensorRows) rows() (n int) {
	for _, p := range t.packets {
		n += int(p.count)
	}
	return n
}

// side is one of both runs while a tensor is compared, with the packet that was decoded last.
type side struct {
	run    *Run
	tensor *tensorRows
	number int
	packet stream.Packet
	data   []byte    // its elements
	values []float32 // those of a stretch
	reason string    // why its rows cannot be compared; "": they can
	loaded bool
}

// load decodes a packet.
func (s *side) load(number int) error {
	if s.loaded && s.number == number {
		return nil
	}
	s.loaded, s.number = true, number
	if err := s.run.Stream.Packet(number, &s.packet); err != nil {
		return err
	}
	if s.reason = incomparable(&s.packet); s.reason != "" {
		return nil
	}
	var err error
	s.data, err = s.run.Stream.ReadInto(&s.packet, s.data)
	return err
}

func incomparable(p *stream.Packet) string {
	switch {
	case p.SampleTotal > 0:
		return "it holds samples"
	case p.Blocks > 1:
		return "it was stored in pieces"
	case p.DType == codec.Raw:
		return "it is block-quantised"
	case LayoutOf(p).Axis != AxisToken:
		return "it has no rows of tokens"
	}
	return ""
}

// stretch returns a part of a token's values: n of them from one on, of the outer-th stretch in which they lie.
func (s *side) stretch(l *Layout, token, outer, from, n int64) (err error) {
	size := int64(s.packet.DType.Size())
	inner := int64(len(s.data)) / size / (l.Rows * l.Outer)
	at := (outer*l.Rows+token-s.packet.TokenFirst)*inner + from
	s.values, err = codec.AppendFloat32(s.values[:0], s.data[at*size:(at+n)*size], s.packet.DType)
	return err
}

// tensorDiff compares one tensor.
type tensorDiff struct {
	d    *Diff
	rows *rowsOf
	same map[int64]int64
	fn   func(*RowDiff) error
	name string
	a, b side
}

func (c *tensorDiff) compare() error {
	compared := 0
	skipped := map[string]int{}
	for _, p := range c.a.tensor.packets {
		for token := p.first; token < p.first+p.count; token++ {
			other, ok := c.same[token]
			if !ok {
				continue
			}
			q, ok := c.b.tensor.find(other)
			if !ok {
				skipped["the other run has no row of this token"]++
				continue
			}
			if err := errors.Join(c.a.load(p.number), c.b.load(q.number)); err != nil {
				return err
			}
			if reason := cmp.Or(c.a.reason, c.b.reason); reason != "" {
				skipped[reason]++
				continue
			}
			a, b := LayoutOf(&c.a.packet), LayoutOf(&c.b.packet)
			if !slices.Equal(a.Shape, b.Shape) {
				skipped[fmt.Sprintf("its rows have the shapes %v and %v", a.Shape, b.Shape)]++
				continue
			}
			compared++
			if err := c.row(&a, &b, token, other); err != nil {
				return err
			}
		}
	}
	if compared > 0 {
		c.d.Tensors++
	}
	for reason, n := range skipped {
		c.d.Skipped = append(c.d.Skipped, SkippedDiff{c.name, n, reason})
	}
	return nil
}

// row compares both rows, a stretch at a time.
func (c *tensorDiff) row(a, b *Layout, token, other int64) error {
	const valuesAtOnce = 16 << 10
	at := c.rows.places[token]
	row := RowDiff{
		Tensor: c.name, Layer: int(c.a.tensor.layer), Ctx: at.ctx, Token: token, Other: other, ID: c.rows.ids[token],
		Seq: at.seq, Request: at.request, Pos: at.pos,
	}
	inner := int64(len(c.a.data)) / int64(c.a.packet.DType.Size()) / (a.Rows * a.Outer)
	var sum rowDistance
	logits := newLogitRow()
	for outer := range a.Outer {
		for from := int64(0); from < inner; from += valuesAtOnce {
			n := min(valuesAtOnce, inner-from)
			if err := errors.Join(c.a.stretch(a, token, outer, from, n),
				c.b.stretch(b, other, outer, from, n)); err != nil {
				return err
			}
			sum.add(c.a.values, c.b.values)
			if c.name == Logits {
				logits.add(c.a.values, c.b.values)
			}
		}
	}
	row.Distance = sum.distance()
	if c.name == Logits {
		if c.d.Logits == nil {
			c.d.Logits = &LogitsDiff{}
		}
		if err := c.d.Logits.add(&row, &logits); err != nil {
			return err
		}
	}
	c.d.Total.Merge(&row.Distance)
	return c.fn(&row)
}
