package export

import (
	"fmt"
	"maps"
	"slices"
)

// speedscope gathers the frames and events of each context: the format has the frames of a file before its events.
type speedscope struct {
	ignoring
	w      *counted
	about  about
	frames map[string]int
	names  []string
	ctxs   map[uint32][]speedscopeEvent
}

// speedscopeEvent opens (O) or closes (C) a frame.
type speedscopeEvent struct {
	Type  string `json:"type"`
	Frame int    `json:"frame"`
	At    int64  `json:"at"`
}

func newSpeedscope(w *counted, a about) *speedscope {
	return &speedscope{w: w, about: a, frames: map[string]int{}, ctxs: map[uint32][]speedscopeEvent{}}
}

func (s *speedscope) frame(name string) int {
	i, ok := s.frames[name]
	if !ok {
		i = len(s.names)
		s.frames[name], s.names = i, append(s.names, name)
	}
	return i
}

func (s *speedscope) execution(x *execution) error {
	events := s.ctxs[x.ctx]
	x.walk(func(sp *span) {
		events = append(events, speedscopeEvent{"O", s.frame(frameName(sp)), sp.start})
	}, func(sp *span) {
		events = append(events, speedscopeEvent{"C", s.frame(frameName(sp)), sp.end})
	})
	s.ctxs[x.ctx] = events
	s.w.n += int64(len(x.spans)) * speedscopeBytes // what will be written of them
	return nil
}

// speedscopeBytes is about what a span takes in the file.
const speedscopeBytes = 100

func frameName(s *span) string {
	if s.tensor != "" {
		return s.name + " " + s.tensor
	}
	return s.name
}

func (s *speedscope) close(*TimelineResult) error {
	s.w.n = 0
	frames := []map[string]string{}
	for _, name := range s.names {
		frames = append(frames, map[string]string{"name": name})
	}
	fmt.Fprintf(s.w, `{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"llamatap","name":%s,`+
		`"shared":{"frames":%s},"profiles":[`, encode(s.about.title), encode(frames))
	for i, ctx := range slices.Sorted(maps.Keys(s.ctxs)) {
		events := s.ctxs[ctx]
		// graphs of a context follow each other; clocks that were read by other threads may differ a little
		for k := 1; k < len(events); k++ {
			events[k].At = max(events[k].At, events[k-1].At)
		}
		if i > 0 {
			fmt.Fprint(s.w, ",")
		}
		fmt.Fprintf(s.w,
			`{"type":"evented","name":"context %d","unit":"nanoseconds","startValue":%d,"endValue":%d,"events":[`,
			ctx, events[0].At, events[len(events)-1].At)
		for k := range events {
			sep := ",\n"
			if k == 0 {
				sep = "\n"
			}
			if _, err := fmt.Fprintf(s.w, "%s%s", sep, encode(&events[k])); err != nil {
				return err
			}
		}
		fmt.Fprint(s.w, "\n]}")
	}
	_, err := fmt.Fprint(s.w, "]}\n")
	return err
}
