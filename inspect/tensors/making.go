package tensors

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/stream"
)

// Making says how the values of a slice came to be what they are.
type Making struct {
	Codecs []string        `json:"codecs"`           // of its packets, each once
	Error  *codec.Achieved `json:"error,omitempty"`  // largest of a row, where a bounded codec made one
	Sample []Sample        `json:"sample,omitempty"` // of every row, in their order, where they are samples
}

// Sample says which elements of a tensor a row holds.
type Sample struct {
	Seed    uint64  `json:"seed"`
	Of      int64   `json:"of"`      // number of elements that there were
	Indices []int64 `json:"indices"` // the row's elements among them
}

// readMaking reads the records of a slice's packets.
func readMaking(s *Slice) (*Making, error) {
	m := &Making{}
	var p stream.Packet
	for i := range s.parts {
		for number := range s.packets(&s.parts[i]) {
			if err := s.run.Stream.Packet(int(number), &p); err != nil {
				return nil, err
			}
			m.add(&p)
		}
	}
	return m, nil
}

func (m *Making) add(p *stream.Packet) {
	if name := p.Codec.String(); !slices.Contains(m.Codecs, name) {
		m.Codecs = append(m.Codecs, name)
	}
	if p.Error != (codec.Achieved{}) {
		if m.Error == nil {
			m.Error = new(codec.Achieved)
		}
		*m.Error = m.Error.Or(p.Error)
	}
	if p.SampleTotal > 0 {
		m.Sample = append(m.Sample, Sample{p.SampleSeed, p.SampleTotal, p.AppendIndices(nil)})
	}
}

// text describes what was altered, in lines.
func (m *Making) text() string {
	var b strings.Builder
	if m.Error != nil {
		fmt.Fprintf(&b, "%s: error %s\n", strings.Join(m.Codecs, ", "), errorText(*m.Error))
	}
	if len(m.Sample) > 0 {
		first := &m.Sample[0]
		fmt.Fprintf(&b, "samples: %d of %d elements; --format json lists which\n", len(first.Indices), first.Of)
	}
	return b.String()
}
