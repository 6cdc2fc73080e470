package memory

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
)

// Use is what one collector of samples says of a function, a variable or a process. Of what it did not see it says
// nothing.
type Use struct {
	Collector string `json:"collector"`
	Source    string `json:"source"` // as of Samples
	// Symbol is a function that accessed memory, DataSymbol a variable that was accessed, by the linker's name;
	// both are left out where nobody named it, and of a process. Demangled is the name in the program's text, where
	// that is another one.
	Symbol     string `json:"symbol,omitempty"`
	DataSymbol string `json:"data_symbol,omitempty"`
	Demangled  string `json:"demangled,omitempty"`
	// PID is a process, Program what ran in it: several names where a number belonged to several.
	PID     *int64                 `json:"pid,omitempty"`
	Program string                 `json:"name,omitempty"`
	Samples int64                  `json:"samples"`
	Share   float64                `json:"share"` // of the collector's events
	Events  map[string]EventCounts `json:"events"`
	// BytesRead and BytesWritten are estimated like events, of samples that record how many bytes were accessed; 0:
	// none does.
	BytesRead    uint64 `json:"bytes_read,omitempty"`
	BytesWritten uint64 `json:"bytes_written,omitempty"`
	// PagesSeen is how many different pages of 4096 bytes were seen, of each process for itself; nil: there were
	// too many to count.
	PagesSeen *int64 `json:"pages_seen,omitempty"`
	all       memtrace.Estimate
}

// Limits on distinct functions, variables and processes.
const (
	maxUses = 1 << 16 // of each
	maxSeen = 1 << 20 // different pages, of all of one kind
)

// grouping gathers samples by the value of a column.
type grouping struct {
	column int
	uses   map[useKey]*use
	pages  map[seenPage]struct{}
	full   bool  // there were more pages
	beyond int64 // samples of values beyond those limits
}

// useKey is a collector and a value: of texts their code, -1 where there is none.
type useKey struct {
	from  memtrace.Collector
	value int64
}

// seenPage is a page of a process that was seen in a use.
type seenPage struct {
	of   *use
	pid  int64
	page uint64
}

// use is what was gathered of one value.
type use struct {
	name          string
	ops           [8]memtrace.Estimate // by memtrace.AccessOp
	read, written float64              // bytes
	pages         int64
}

// groupOf returns the sums of the group that a row's value belongs to.
func (g *grouping) groupOf(r *rows, row int, from memtrace.Collector) *use {
	v, key := r.columns[g.column], useKey{from, -1}
	text := ""
	switch {
	case v == nil || v.Null(row):
	case len(v.Codes) > 0:
		key.value, text = int64(v.Codes[row]), v.Text(row)
	default:
		key.value = v.Ints[row]
	}
	u := g.uses[key]
	if u == nil && len(g.uses) < maxUses {
		u = &use{name: strings.Clone(text)}
		g.uses[key] = u
	}
	return u
}

// add takes a sample in.
func (g *grouping) add(r *rows, row int, w *witness, weight int64) {
	u := g.groupOf(r, row, w.from)
	if u == nil {
		g.beyond++
		return
	}
	weight = max(weight, 1)
	u.ops[w.op].Add(weight)
	switch w.op {
	case memtrace.OpRead:
		u.read += float64(w.size) * float64(weight)
	case memtrace.OpWrite:
		u.written += float64(w.size) * float64(weight)
	}
	if w.addr == 0 {
		return
	}
	pid := number(r.columns[memtrace.TracePID], row, -1)
	for page := w.addr / memtrace.PageBytes; page <= (w.addr+max(w.size, 1)-1)/memtrace.PageBytes && !g.full; page++ {
		before := len(g.pages)
		g.pages[seenPage{u, pid, page}] = struct{}{}
		u.pages += int64(len(g.pages) - before)
		g.full = len(g.pages) >= maxSeen
	}
}

// fillUses writes out what samples say of functions, variables and processes.
func (s *sampleSums) fillUses(r *Report) {
	programs := programsOf(r.Path)
	for _, g := range s.groupings {
		for key, u := range g.uses {
			one := s.useOf(key.from, u)
			switch {
			case g.column == memtrace.TracePID && key.value >= 0:
				one.PID, one.Program = &key.value, strings.Join(programs[key.value], ", ")
			case g.column == memtrace.TraceSymbol:
				one.Symbol = u.name
			case g.column == memtrace.TraceDataSymbol:
				one.DataSymbol = u.name
			}
			if name := plainName(u.name); name != u.name {
				one.Demangled = name
			}
			if !g.full {
				one.PagesSeen = &u.pages
			}
			to := usesOf(r, g.column)
			*to = append(*to, one)
		}
		slices.SortFunc(*usesOf(r, g.column), compareUses)
		if g.beyond > 0 {
			r.note(count(g.beyond, "sample is", "samples are") + " of more than " + strconv.Itoa(maxUses) +
				" different values of " + memtrace.TraceColumns()[g.column].Name + ", and left out of that table")
		}
	}
	if len(s.groupings) > 0 && len(r.Samples) == 0 {
		r.note(noSamples)
	}
}

// noSamples explains why functions, variables and processes are missing.
const noSamples = "there are no samples in this run (--tap-samples, llamatap memory record): the ledger records " +
	"operations, not functions, variables and processes"

// useOf is a use as the report has it.
func (s *sampleSums) useOf(from memtrace.Collector, u *use) Use {
	one := Use{Collector: from.String(), Source: s.source(from), BytesRead: uint64(math.Round(u.read)),
		BytesWritten: uint64(math.Round(u.written))}
	one.Events, one.all = s.eventsOf(from, u.ops[:])
	one.Samples, one.Share = one.all.Samples, one.all.Events/(s.by[from].Period()*float64(s.by[from].Samples))
	return one
}

// compareUses puts those first that most events are of.
func compareUses(a, b Use) int {
	pid := func(u *Use) int64 {
		if u.PID == nil {
			return -1
		}
		return *u.PID
	}
	return cmp.Or(cmp.Compare(a.Collector, b.Collector), cmp.Compare(b.all.Events, a.all.Events),
		cmp.Compare(a.Symbol, b.Symbol), cmp.Compare(a.DataSymbol, b.DataSymbol),
		cmp.Compare(pid(&a), pid(&b)))
}

// usesOf is the table of uses by a column of the trace.
func usesOf(r *Report, column int) *[]Use {
	switch column {
	case memtrace.TraceSymbol:
		return &r.Symbols
	case memtrace.TraceDataSymbol:
		return &r.DataSymbols
	}
	return &r.Processes
}

// maxName bounds how long a demangled name may get, as a power of two: a mangled one may stand for one without bounds.
const maxName = 14

// plainName is the name of a function or variable as C++ and Rust programs have it in their text.
func plainName(linked string) string { return demangle.Filter(linked, demangle.MaxLength(maxName)) }

// programsOf are the names of a run's processes by number, as metadata.json states them.
func programsOf(dir string) map[int64][]string {
	m, err := rundir.ReadMetadata(dir)
	if err != nil {
		return nil
	}
	var all []struct {
		PID  int64  `json:"pid"`
		Name string `json:"name"`
	}
	if json.Unmarshal(m.Extra["processes"], &all) != nil { // of other runs it is not a list
		return nil
	}
	names := map[int64][]string{}
	for _, p := range all {
		if p.Name != "" && !slices.Contains(names[p.PID], p.Name) {
			names[p.PID] = append(names[p.PID], p.Name)
		}
	}
	return names
}
