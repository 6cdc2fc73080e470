package filemap

import (
	"cmp"
	"slices"

	"github.com/llamatap/llamatap/resource"
)

// sums are what was waited for in one stretch of time.
type sums struct {
	all       resource.WaitFigures
	stalled   cover
	spread    *resource.Spread
	histogram resource.Histogram // microseconds
	places    map[int]*resource.WaitFigures
	memory    map[string]*resource.WaitFigures
	first     []firstFault
}

// firstFault is the run's first fault on a tensor.
type firstFault struct {
	place int
	begin int64
}

func (s *sums) empty() bool { return s.all == resource.WaitFigures{} }

// figures are those of one event, without the bytes, which spread over places.
func figures(e *Event) (f resource.WaitFigures) {
	took := max(0, e.EndNS-e.BeginNS)
	switch e.Kind {
	case Fault:
		f.WaitNS, f.Faults, f.FaultNS, f.BlockedNS, f.PreemptedNS = took, 1, took, e.BlockedNS, e.PreemptedNS
		if f.Minor = 1; e.Flags&Major != 0 {
			f.Minor, f.Major = 0, 1
		}
	case Call:
		f.WaitNS, f.Calls, f.CallNS = took, 1, took
	case Request:
		if f.Requests = 1; e.Flags&Unseen == 0 {
			f.BlockNS = took
		}
	}
	return f
}

// add counts an event. Its place is that of a fault or call, and of a request's first byte; bytes are counted where
// they lie.
func (s *sums) add(e *Event, h Hit, files *Files) {
	f := figures(e)
	s.all.Add(&f)
	if wait := e.WaitNS(); e.Kind == Fault || e.Kind == Call {
		s.stalled.add(e.BeginNS, e.EndNS)
		if s.spread == nil {
			s.spread = &resource.Spread{}
		}
		s.spread.Add(wait)
		s.histogram.Add(uint64(wait) / 1000)
	}
	if e.Kind == Read || e.Kind == Request {
		s.bytes(e, h, files)
	}
	switch {
	case h.Place >= 0:
		s.at(h.Place).Add(&f)
	case h.Memory != "":
		if s.memory == nil {
			s.memory = map[string]*resource.WaitFigures{}
		}
		m := s.memory[h.Memory]
		if m == nil {
			m = &resource.WaitFigures{}
			s.memory[h.Memory] = m
		}
		m.Add(&f)
	default:
		s.at(unknownPlace).Add(&f)
	}
}

// unknownPlace stands for waits on a file that is not known.
const unknownPlace = -1

func (s *sums) at(place int) *resource.WaitFigures {
	if s.places == nil {
		s.places = map[int]*resource.WaitFigures{}
	}
	p := s.places[place]
	if p == nil {
		p = &resource.WaitFigures{}
		s.places[place] = p
	}
	return p
}

// bytes counts what was read where it lies.
func (s *sums) bytes(e *Event, h Hit, files *Files) {
	count := func(place int, n uint64) {
		f := s.at(place)
		if e.Kind == Read {
			f.ReadBytes += n
			s.all.ReadBytes += n
		} else {
			f.BlockBytes += n
			s.all.BlockBytes += n
		}
	}
	whole := e.Bytes
	if e.Kind == Read {
		whole = (e.Last - e.First + 1) * files.Page
	}
	known := whole
	if h.Place < 0 {
		known = 0
	} else if e.Kind == Request {
		known = min(whole, (e.Last-e.First+1)*files.Page)
	}
	if known > 0 {
		files.spread(e.File, h.Offset, known, count)
	}
	if rest := whole - known; rest > 0 {
		count(unknownPlace, rest)
	}
}

// fill puts the sums into a line, with the top places.
func (s *sums) fill(l *resource.WaitLine, files *Files, top int) {
	l.WaitFigures = s.all
	l.StalledNS = s.stalled.total()
	if s.spread != nil {
		l.P50NS, l.P95NS, l.P99NS = s.spread.AtMost(0.5), s.spread.AtMost(0.95), s.spread.AtMost(0.99)
		l.MaxNS = s.spread.Max
		l.Histogram = s.histogram.Buckets(false)
	}
	l.Memory = s.memory
	if len(s.places) == 0 {
		return
	}
	waitPlaces := make([]resource.WaitPlace, 0, len(s.places))
	for i, f := range s.places {
		waitPlaces = append(waitPlaces, describePlace(i, f, files))
	}
	slices.SortFunc(waitPlaces, func(a, b resource.WaitPlace) int {
		return cmp.Or(cmp.Compare(b.WaitNS, a.WaitNS), cmp.Compare(b.BlockBytes, a.BlockBytes),
			cmp.Compare(b.ReadBytes, a.ReadBytes), cmp.Compare(a.File, b.File), cmp.Compare(a.Tensor, b.Tensor))
	})
	if len(waitPlaces) > top {
		l.Others = &resource.WaitOthers{Count: len(waitPlaces) - top}
		for i := range waitPlaces[top:] {
			l.Others.Add(&waitPlaces[top+i].WaitFigures)
		}
		waitPlaces = waitPlaces[:top]
	}
	l.Places = waitPlaces
}

// describePlace describes one place of a line.
func describePlace(i int, f *resource.WaitFigures, files *Files) resource.WaitPlace {
	if i == unknownPlace {
		return resource.WaitPlace{File: resource.FileUnknown, WaitFigures: *f}
	}
	p := files.Place(i)
	w := resource.WaitPlace{File: p.File, Tensor: p.Tensor, WaitFigures: *f}
	if p.Layer >= 0 {
		layer := p.Layer
		w.Layer = &layer
	}
	return w
}
