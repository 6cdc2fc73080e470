package export

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"
)

// profileSums adds up what executions took by their stacks: phase, layer, component, op, tensor. Time that is in no
// part is a leaf of its own, so that the sum is the time in graphs.
type profileSums struct {
	ignoring
	w       *counted
	about   about
	samples map[string]*profile.Sample
	stacks  map[string]*profile.Location
	list    profile.Profile
	first   int64
	last    int64
}

// The values of a sample.
const (
	valueTime = iota
	valueCount
	valueFLOPs
	valueRead
	valueWritten
	values
)

func newProfile(w *counted, a about) *profileSums {
	p := &profileSums{w: w, about: a, samples: map[string]*profile.Sample{}, stacks: map[string]*profile.Location{}}
	p.list.SampleType = []*profile.ValueType{
		{Type: "time", Unit: "nanoseconds"}, {Type: "spans", Unit: "count"}, {Type: "flops", Unit: "count"},
		{Type: "bytes_read", Unit: "bytes"}, {Type: "bytes_written", Unit: "bytes"},
	}
	p.list.DefaultSampleType = "time"
	p.list.PeriodType, p.list.Period = &profile.ValueType{Type: "time", Unit: "nanoseconds"}, 1
	return p
}

// location is that of a frame, made once.
func (p *profileSums) location(name string) *profile.Location {
	l := p.stacks[name]
	if l == nil {
		id := uint64(len(p.list.Location)) + 1
		f := &profile.Function{ID: id, Name: name, SystemName: name}
		l = &profile.Location{ID: id, Line: []profile.Line{{Function: f}}}
		p.list.Function, p.list.Location = append(p.list.Function, f), append(p.list.Location, l)
		p.stacks[name] = l
	}
	return l
}

// sample returns that of a stack, root first.
func (p *profileSums) sample(frames []string) *profile.Sample {
	key := strings.Join(frames, "\x00")
	s := p.samples[key]
	if s == nil {
		s = &profile.Sample{Value: make([]int64, values)}
		for i := len(frames) - 1; i >= 0; i-- { // leaf first
			s.Location = append(s.Location, p.location(frames[i]))
		}
		p.samples[key] = s
		p.list.Sample = append(p.list.Sample, s)
	}
	return s
}

// frames are those of a stack of spans: what runs in a layer is under "layer N", and an op's tensor below it without
// the layer's number.
func frames(phase string, stack []*span) []string {
	out := []string{phase}
	for _, s := range stack[1:] {
		out = append(out, s.name)
		if tensor := strings.TrimSuffix(s.tensor, "-"+strconv.Itoa(s.layer)); tensor != "" {
			out = append(out, tensor)
		}
	}
	return out
}

func (p *profileSums) execution(x *execution) error {
	if p.first == 0 {
		p.first = x.spans[0].start
	}
	p.last = max(p.last, x.spans[0].end)
	inParts := map[*span]bool{}
	x.self(func(stack []*span, ns int64) {
		last := len(stack) - 1
		if last > 0 {
			inParts[stack[last-1]] = true
		}
		top, names := stack[last], frames(x.phase, stack)
		parts := inParts[top]
		switch {
		case top.depth == depthGraph && !x.timed:
			names = append(names, "(not timed inside)")
		case parts:
			names = append(names, "(between)")
		}
		s := p.sample(names)
		s.Value[valueTime] += ns
		s.Value[valueCount]++
		if !parts { // what parts did is theirs
			s.Value[valueFLOPs] += max(0, top.flops)
			s.Value[valueRead] += max(0, top.read)
			s.Value[valueWritten] += max(0, top.written)
		}
	})
	return nil
}

func (p *profileSums) close(r *TimelineResult) error {
	if p.about.unix != 0 && p.first != 0 {
		p.list.TimeNanos = p.first - p.about.mono + p.about.unix
		p.list.DurationNanos = p.last - p.first
	}
	p.list.Comments = []string{fmt.Sprintf("run %s, model %s: %d graphs, %d of them timed inside", p.about.title,
		p.about.model, r.Graphs, r.TimedGraphs)}
	if left := r.LeftOut(); left != "" {
		p.list.Comments = append(p.list.Comments, left)
	}
	if err := p.list.CheckValid(); err != nil {
		return err
	}
	return p.list.Write(p.w)
}
