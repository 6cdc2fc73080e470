package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/llamatap/llamatap/bench/writing"
	"github.com/llamatap/llamatap/store/codec"
)

// Stream is the table of how fast a recording is written, each figure against what the machine could do in the same
// round.
type Stream struct {
	Residual []writing.Piece // what is written
	Others   []writing.Piece // of these only the ratio is told
	Dir      string          // folder on the disk to write to
	Time     time.Duration   // about how long all of it may take
	Rounds   int
	// DiskBytes bounds each file.
	DiskBytes int64
	Table     *Table
	Progress  func(string)
}

// streamRounds is what the rounds measured.
type streamRounds struct {
	limits []writing.Limits
	rates  [][]writing.Rate // by case, by round
}

// Run measures and fills the table.
func (s Stream) Run(ctx context.Context) error {
	cases := writing.Cases()
	measured := streamRounds{rates: make([][]writing.Rate, len(cases))}
	bounds := writing.Bounds{Time: s.Time / time.Duration(s.Rounds*(len(cases)+2)), DiskBytes: s.DiskBytes}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range s.Rounds {
		limits, err := writing.Measure(s.Dir, s.Residual, bounds)
		if err != nil {
			return err
		}
		measured.limits = append(measured.limits, limits)
		for _, k := range random.Perm(len(cases)) {
			rate, err := cases[k].Run(ctx, s.Dir, s.Residual, bounds)
			if err != nil {
				return fmt.Errorf("write with %s: %w", cases[k].Name, err)
			}
			measured.rates[k] = append(measured.rates[k], rate)
		}
		s.Progress(fmt.Sprintf("stream: round %d of %d", round+1, s.Rounds))
	}
	s.tellLimits(measured.limits)
	for k, c := range cases {
		s.Table.Add(measured.line(c, k))
	}
	s.Table.Add(measured.prepared(cases))
	return s.tellRatios()
}

// tellLimits tells what the machine could do.
func (s Stream) tellLimits(limits []writing.Limits) {
	for _, l := range []struct {
		name string
		of   func(writing.Limits) float64
	}{
		{"limit: one writer past the page cache", func(l writing.Limits) float64 { return l.Disk }},
		{"limit: SHA-256 for the manifest, one thread", func(l writing.Limits) float64 { return l.Hash }},
		{"limit: copying, one thread", func(l writing.Limits) float64 { return l.Copy }},
	} {
		var all []float64
		for _, measured := range limits {
			all = append(all, l.of(measured)/1e9)
		}
		i := MedianInterval(all)
		s.Table.Add(Line{Section: "stream", Name: l.name, Value: i.Median, Unit: "GB/s", Figure: fmt.Sprintf("%.2f to %.2f", i.Low, i.High)})
	}
}

// line is a case's.
func (m *streamRounds) line(c writing.Case, k int) Line {
	var source, ratios []float64
	limits := map[string]int{}
	for round, rate := range m.rates[k] {
		limit, name := streamLimit(c, rate, m.limits[round])
		source, ratios = append(source, rate.Source/1e9), append(ratios, rate.Source/limit)
		limits[name]++
	}
	i := MedianInterval(ratios)
	l := Line{Section: "stream", Name: fmt.Sprintf("F32 written: %s, %.2f×", c.Name, m.rates[k][0].Ratio), Value: median(source), Unit: "GB/s",
		Limit: most(limits), Ratio: &i}
	if c.Codec != codec.QFSE && c.Codec != codec.ZstdShuffle && c.Ahead == 0 {
		l.Gate, l.Verdict = "≥ 1", i.AtLeast(1)
	}
	return l
}

// prepared compares writing into room that was kept ahead with writing without, by the rounds in which both were.
func (m *streamRounds) prepared(cases []writing.Case) Line {
	with := slices.IndexFunc(cases, func(c writing.Case) bool { return c.Ahead > 0 })
	without := slices.IndexFunc(cases, func(c writing.Case) bool { return c.Codec == codec.None && c.Ahead == 0 })
	var ratios, files []float64
	for round, rate := range m.rates[with] {
		ratios = append(ratios, rate.File/m.rates[without][round].File)
		files = append(files, rate.File/1e9)
	}
	i := MedianInterval(ratios)
	return Line{Section: "stream", Name: "none, f16: room kept ahead (--tap-preallocate 64M) / none", Value: median(files), Unit: "GB/s", Limit: "the same without", Ratio: &i}
}

// streamLimit is what a case's rate, in bytes of F32 per second, is to reach, and what decides it: a goal, or nine
// tenths of what the file's limits allow, whichever is smaller.
func streamLimit(c writing.Case, rate writing.Rate, l writing.Limits) (limit float64, name string) {
	goals := map[codec.ID]float64{codec.Q: 2e9, codec.LZ4: 1.2e9, codec.Zstd: 0.6e9}
	limit, name = goals[c.Codec], fmt.Sprintf("%.1f GB/s", goals[c.Codec]/1e9)
	if !c.Disk {
		limit, name = 4e9, "4.0 GB/s"
	}
	least := func(other float64, of string) {
		if limit == 0 || other < limit {
			limit, name = other, of
		}
	}
	shrink := rate.Source / rate.File
	if c.Disk {
		least(0.9*shrink*l.Disk, "0.9 of the disk")
	}
	least(0.9*shrink*l.Hash, "0.9 of SHA-256")
	return limit, name
}

// most is the name that was counted most often; of several the first in the alphabet.
func most(counts map[string]int) (name string) {
	names := make([]string, 0, len(counts))
	for n := range counts {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		if name == "" || counts[n] > counts[name] {
			name = n
		}
	}
	return name
}

// tellRatios tells how far the bounded codecs pack. The goals are for the residual stream of the prompt: of a token
// alone a small model has tensors of some hundred values, of which heads and tables are a part. These figures are
// computed from the same bytes every time: they have no spread.
func (s Stream) tellRatios() error {
	var prompt, tokens []writing.Piece
	for _, p := range s.Residual {
		if int64(len(p.Data)) > 4*p.Packet.NE[0] {
			prompt = append(prompt, p)
		} else {
			tokens = append(tokens, p)
		}
	}
	for _, r := range []struct {
		id     codec.ID
		metric codec.Metric
		gate   float64
	}{{codec.Q, codec.MaxAbs, 3.15}, {codec.QFSE, codec.MaxAbs, 3.4}, {codec.QFSE, codec.NRMSE, 3.1}} {
		for i, of := range []struct {
			name   string
			pieces []writing.Piece
		}{{"l_out attn_out ffn_out, prompt", prompt}, {"the same, single tokens", tokens}, {"all other tensors", s.Others}} {
			if len(of.pieces) == 0 {
				continue
			}
			ratio, made, sparse, err := writing.Ratio(of.pieces, r.id, codec.Bound{Error: 1e-3, Metric: r.metric})
			if err != nil {
				return err
			}
			line := Line{Section: "stream", Name: fmt.Sprintf("%v, %v 1e-3: %s", r.id, r.metric, of.name), Value: ratio, Unit: "×"}
			line.Figure = fmt.Sprintf("error %.3g, %.3g; without %d sparse tensors of %d", made.MaxAbs, made.NRMSE, sparse, len(of.pieces))
			if i == 0 {
				line.Gate, line.Verdict = fmt.Sprintf("≥ %.2f×", r.gate), Failed
				if ratio >= r.gate {
					line.Verdict = Passed
				}
			}
			s.Table.Add(line)
		}
	}
	return nil
}
