package export

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/inspect/resources"
)

// The bounds of tracks. What is beyond them is put together or counted.
const (
	maxLanes     = 16      // of each kind
	maxStretches = 1 << 12 // of a lane; even
	maxPoints    = 1 << 11 // values of a counter
	maxCounters  = 256
)

// Tracks are what a run recorded over time, for charts: of bounded size, whatever the length of the run. Times are in
// nanoseconds of the monotonic clock.
type Tracks struct {
	ignoring // block requests, of whose bytes there are counters, and instants
	// Begin and End are those of the executions after the set-up; where there is none, of all that has a
	// time, and 0 where nothing has.
	Begin, End int64
	// Unix and Mono are one reading of both clocks; 0 where it is not known.
	Unix, Mono int64
	Graphs     Lanes
	Tokens     Lanes
	Faults     Lanes
	Counters   []*Counter // by name
	Setups     int64      // executions of set-up, which are not among Graphs
	BadLines   int64      // of all files
	// CountersLeft are values of counters beyond the bound of their number.
	CountersLeft int64

	values      map[string]*Counter
	first, last int64 // of counters
}

// Lanes are the lanes of one kind.
type Lanes struct {
	All   []*Lane // in the order in which they began
	Left  int64   // stretches of further lanes
	mixed bool    // stretches of different kinds may be put together: each has its own
}

// Lane is parts of the time that follow each other.
type Lane struct {
	Name string // of graphs their context, of tokens their sequence, of page faults their thread
	All  []Stretch
	Each int // each stretch stands for so many: there are too many
}

// Stretch is a part of the time: an execution, a token, a page fault, or several that follow each other.
type Stretch struct {
	Start, End int64
	After      int    // of tokens: how many another generated one of the sequence came before
	AfterNS    int64  // of these: the times since that one, all together
	Kind       string // of a graph its phase, of a token its text, of a fault its place; Several
	Tokens     int    // of graphs
	N          int    // how many are put together
}

// Several is the kind of stretches of different kinds that are put together.
const Several = "several"

// Counter is a value over time.
type Counter struct {
	Name, Unit string
	At         []int64
	Value      []float64
	Every      int // each value stands for so many that were recorded

	seen int
}

// CollectTracks reads the tracks of a run directory, or of a file of events. It does not read what the executions
// consist of.
func CollectTracks(ctx context.Context, path string, progress func(done, total int64)) (*Tracks, error) {
	about := aboutRun(path)
	t := &Tracks{Unix: about.unix, Mono: about.mono, values: map[string]*Counter{}, Tokens: Lanes{mixed: true},
		Faults: Lanes{mixed: true}}
	r := &reader{o: TimelineOptions{Progress: progress}, caches: map[string]*kv{}, to: t, isBounded: true}
	r.clear()
	if err := r.readEvents(ctx, path); err != nil && !errors.Is(err, resources.ErrNoLog) {
		return nil, err
	}
	if err := (beside{r}).read(ctx, path); err != nil {
		return nil, err
	}
	if t.BadLines = r.result.BadLines; t.Begin == 0 {
		t.Begin, t.End = t.first, t.last
	}
	for _, name := range slices.Sorted(maps.Keys(t.values)) {
		t.Counters = append(t.Counters, t.values[name])
	}
	return t, ctx.Err()
}

// at extends the time that the tracks are of.
func (t *Tracks) at(start, end int64) {
	if t.Begin == 0 || start < t.Begin {
		t.Begin = start
	}
	t.End = max(t.End, end)
}

func (t *Tracks) execution(x *execution) error {
	g := &x.spans[0]
	if x.phase == resources.PhaseSetup {
		t.Setups++
		return nil
	}
	t.at(g.start, g.end)
	t.Graphs.add("context "+strconv.Itoa(int(x.ctx)),
		Stretch{Start: g.start, End: g.end, Kind: x.phase, Tokens: x.tokens})
	return nil
}

func (t *Tracks) token(k *token) error {
	lane := "no known sequence"
	if k.seq >= 0 {
		lane = "sequence " + strconv.Itoa(int(k.seq))
	}
	if k.ctx > 0 {
		lane += " of context " + strconv.Itoa(int(k.ctx))
	}
	s := Stretch{Start: k.start, End: k.end, Kind: k.text}
	if k.end > k.start && !k.first {
		s.After, s.AfterNS = 1, k.end-k.start
	}
	t.Tokens.add(lane, s)
	return nil
}

func (t *Tracks) fault(f *fault) error {
	t.Faults.add("thread "+strconv.Itoa(f.tid), Stretch{Start: f.start, End: f.end, Kind: cmp.Or(f.place, "unknown")})
	return nil
}

func (t *Tracks) counter(c *counter) error {
	k := t.values[c.name]
	if k == nil {
		if len(t.values) >= maxCounters {
			t.CountersLeft++
			return nil
		}
		k = &Counter{Name: c.name, Unit: c.unit, Every: 1}
		t.values[c.name] = k
	}
	if t.first == 0 || c.at < t.first {
		t.first = c.at
	}
	t.last = max(t.last, c.at)
	k.add(c.at, c.value)
	return nil
}

// add takes a value. Where there are too many, every second one is dropped, and from then on.
func (k *Counter) add(at int64, value float64) {
	if k.seen++; (k.seen-1)%k.Every != 0 {
		return
	}
	if len(k.At) == maxPoints {
		for i := range maxPoints / 2 {
			k.At[i], k.Value[i] = k.At[2*i], k.Value[2*i]
		}
		k.At, k.Value, k.Every = k.At[:maxPoints/2], k.Value[:maxPoints/2], 2*k.Every
	}
	k.At, k.Value = append(k.At, at), append(k.Value, value)
}

// add takes a stretch of a lane. Where the lane has too many, neighbours are put together, then and from then on.
func (l *Lanes) add(lane string, next Stretch) {
	i := slices.IndexFunc(l.All, func(of *Lane) bool { return of.Name == lane })
	if i < 0 {
		if len(l.All) == maxLanes {
			l.Left++
			return
		}
		i, l.All = len(l.All), append(l.All, &Lane{Name: lane, Each: 1})
	}
	next.N = 1
	of := l.All[i]
	if n := len(of.All); n > 0 && of.All[n-1].N < of.Each && (l.mixed || of.All[n-1].Kind == next.Kind) {
		of.All[n-1].join(&next)
		return
	}
	if len(of.All) == maxStretches {
		of.halve(l.mixed)
	}
	of.All = append(of.All, next)
}

// halve puts neighbours together, those of different kinds only if mixed, or if that leaves too many.
func (l *Lane) halve(mixed bool) {
	l.Each *= 2
	kept := l.All[:1]
	for i := 1; i < len(l.All); i++ {
		last, next := &kept[len(kept)-1], l.All[i]
		if last.N+next.N <= l.Each && (mixed || last.Kind == next.Kind) {
			last.join(&next)
		} else {
			kept = append(kept, next)
		}
	}
	if l.All = kept; len(kept) > maxStretches*3/4 {
		l.halve(true)
	}
}

func (s *Stretch) join(next *Stretch) {
	if s.Kind != next.Kind {
		s.Kind = Several
	}
	s.Start, s.End = min(s.Start, next.Start), max(s.End, next.End)
	s.After += next.After
	s.AfterNS += next.AfterNS
	s.Tokens += next.Tokens
	s.N += next.N
}

var _ sink = (*Tracks)(nil)
