package host

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// The bounds of a report of waits.
const (
	maxWaitRows   = 100_000 // executions and intervals that are listed
	maxWaitPlaces = 1 << 17 // tensors and files with rows of their own
	maxPhases     = 64
)

// Waits is what a run waited for on files, as host_waits.jsonl has it.
type Waits struct {
	Run   string `json:"run,omitempty"`
	Lines Lines  `json:"file"`
	// Total is the recorder's own, else the sum of the lines: of a run that was not ended, or recorded without a tap.
	Total   resource.WaitLine   `json:"total"`
	Sealed  bool                `json:"sealed"` // the total is the recorder's
	Phases  []WaitPhase         `json:"phases"`
	Rows    []WaitRow           `json:"rows"` // executions, or intervals, in order
	Beyond  int64               `json:"rows_beyond,omitempty"`
	Slowest []int               `json:"slowest"` // numbers of Rows, those that stood still longest first
	Tensors []WaitTensor        `json:"places"`  // tensors and other files, by wait
	Layers  []WaitLayer         `json:"layers"`
	Order   *resource.WaitOrder `json:"first_faults,omitempty"` // summed up over all executions
	Notes   []string            `json:"notes"`

	phases map[string]*WaitPhase
	places map[placeKey]*WaitTensor
}

// WaitPhase sums up the lines of one phase.
type WaitPhase struct {
	Phase      string `json:"phase"` // load, setup, prefill, decode, between …
	Lines      int64  `json:"lines"`
	Tokens     int64  `json:"tokens,omitempty"`
	DurationNS int64  `json:"duration_ns"`
	StalledNS  int64  `json:"stalled_ns"`
	MaxNS      int64  `json:"wait_max_ns"`
	resource.WaitFigures
}

// WaitRow is one execution or interval.
type WaitRow struct {
	Kind       string              `json:"kind"`
	Exec       *uint64             `json:"exec,omitempty"`
	Ctx        *uint32             `json:"ctx,omitempty"`
	Phase      string              `json:"phase,omitempty"`
	TokenFirst *int64              `json:"token_first,omitempty"`
	TokenCount int                 `json:"token_count,omitempty"`
	DurationNS int64               `json:"duration_ns"`
	StalledNS  int64               `json:"stalled_ns"`
	P50NS      int64               `json:"wait_p50_ns,omitempty"`
	P95NS      int64               `json:"wait_p95_ns,omitempty"`
	P99NS      int64               `json:"wait_p99_ns,omitempty"`
	MaxNS      int64               `json:"wait_max_ns,omitempty"`
	Most       *resource.WaitPlace `json:"most,omitempty"` // where it waited most
	resource.WaitFigures
}

// WaitTensor is a tensor or another file over the whole run.
type WaitTensor struct {
	resource.WaitPlace
	Executions int64 `json:"executions"` // in how many lines it was among those that are listed
}

// WaitLayer sums up the tensors of one layer.
type WaitLayer struct {
	Layer int `json:"layer"`
	resource.WaitFigures
}

type placeKey struct{ file, tensor string }

// errWaitLine is what is wrong with a line of another file.
var errWaitLine = errors.New("no line of waits")

// ReadWaits reads host_waits.jsonl, or that of a run directory.
func ReadWaits(path string) (*Waits, error) {
	w := &Waits{phases: map[string]*WaitPhase{}, places: map[placeKey]*WaitTensor{}}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		w.Run = path
		file := find(path, []string{rundir.WaitsName})
		if file == "" {
			return nil, fmt.Errorf("%s: there is no %s in it: record a run with --tap-host waits", path,
				rundir.WaitsName)
		}
		path = file
	}
	err := open(path, "record a run with --tap-host waits, or give a run directory", &w.Lines, w.addLine)
	if err != nil {
		return nil, err
	}
	if len(w.Rows) == 0 && !w.Sealed && len(w.phases) == 0 {
		return nil, fmt.Errorf("%s: no line of waits in %d lines; give a run directory, or its %s",
			filepath.Clean(path), w.Lines.Total, rundir.WaitsName)
	}
	w.finish()
	return w, nil
}

// addLine adds up one line.
func (w *Waits) addLine(text []byte) error {
	var l resource.WaitLine
	if err := decode(text, &l); err != nil {
		return err
	}
	switch l.Kind {
	case resource.WaitTotal:
		w.Total, w.Sealed = l, true
		return nil
	case resource.WaitGraph, resource.WaitInterval:
		w.row(&l)
	case resource.WaitBetween, resource.WaitPhase:
	default:
		return errWaitLine
	}
	w.phase(&l)
	for i := range l.Places {
		w.addPlace(&l.Places[i], 1)
	}
	if o := l.FirstFaults; o != nil {
		if w.Order == nil {
			w.Order = &resource.WaitOrder{}
		}
		w.Order.Tensors += o.Tensors
		w.Order.InOrder += o.InOrder
		w.Order.Known = max(w.Order.Known, o.Known)
	}
	return nil
}

func (w *Waits) row(l *resource.WaitLine) {
	if len(w.Rows) >= maxWaitRows {
		w.Beyond++
		return
	}
	row := WaitRow{
		Kind: l.Kind, Exec: l.Exec, Ctx: l.Ctx, Phase: l.Phase, TokenFirst: l.TokenFirst, TokenCount: l.TokenCount,
		DurationNS: l.DurationNS,
		StalledNS:  l.StalledNS, P50NS: l.P50NS, P95NS: l.P95NS, P99NS: l.P99NS, MaxNS: l.MaxNS,
		WaitFigures: l.WaitFigures,
	}
	if len(l.Places) > 0 {
		row.Most = new(l.Places[0])
	}
	w.Rows = append(w.Rows, row)
}

func (w *Waits) phase(l *resource.WaitLine) {
	name := l.Phase
	if l.Kind == resource.WaitBetween || l.Kind == resource.WaitInterval {
		name = l.Kind
	}
	p := w.phases[name]
	if p == nil {
		if len(w.phases) >= maxPhases {
			name = "others"
		}
		if p = w.phases[name]; p == nil {
			p = &WaitPhase{Phase: name}
			w.phases[name] = p
		}
	}
	p.Lines++
	p.Tokens += int64(l.TokenCount)
	p.DurationNS += l.DurationNS
	p.StalledNS += l.StalledNS
	p.MaxNS = max(p.MaxNS, l.MaxNS)
	p.Add(&l.WaitFigures)
	if !w.Sealed {
		w.Total.Add(&l.WaitFigures)
		w.Total.StalledNS += l.StalledNS
		w.Total.DurationNS += l.DurationNS
		w.Total.MaxNS = max(w.Total.MaxNS, l.MaxNS)
		w.memory(l.Memory)
	}
}

// memory adds up what was waited for on memory of no file, of kinds that are known.
func (w *Waits) memory(by map[string]*resource.WaitFigures) {
	for _, kind := range memoryKinds {
		f := by[kind]
		if f == nil {
			continue
		}
		if w.Total.Memory == nil {
			w.Total.Memory = map[string]*resource.WaitFigures{}
		}
		if w.Total.Memory[kind] == nil {
			w.Total.Memory[kind] = &resource.WaitFigures{}
		}
		w.Total.Memory[kind].Add(f)
	}
}

// addPlace adds to a tensor or file; nothing where there are too many.
func (w *Waits) addPlace(p *resource.WaitPlace, lines int64) {
	key := placeKey{p.File, p.Tensor}
	t := w.places[key]
	if t == nil {
		if len(w.places) >= maxWaitPlaces {
			return
		}
		t = &WaitTensor{WaitPlace: resource.WaitPlace{File: p.File, Tensor: p.Tensor, Layer: p.Layer}}
		w.places[key] = t
	}
	t.Add(&p.WaitFigures)
	t.Executions += lines
}

// phaseOrder is how phases follow each other in the report; others come behind.
var phaseOrder = []string{"load", "setup", "prefill", "decode", "maintenance", resource.WaitBetween,
	resource.WaitInterval}

func (w *Waits) finish() {
	if w.Sealed { // the total lists every place
		for _, t := range w.places {
			t.WaitFigures = resource.WaitFigures{}
		}
		for i := range w.Total.Places {
			w.addPlace(&w.Total.Places[i], 0)
		}
		w.Total.Places = nil
	}
	for _, t := range w.places {
		w.Tensors = append(w.Tensors, *t)
	}
	slices.SortFunc(w.Tensors, func(a, b WaitTensor) int {
		return cmp.Or(cmp.Compare(b.WaitNS, a.WaitNS), cmp.Compare(b.BlockBytes, a.BlockBytes),
			cmp.Compare(a.File, b.File), cmp.Compare(a.Tensor, b.Tensor))
	})
	layers := map[int]*WaitLayer{}
	for i := range w.Tensors {
		if n := w.Tensors[i].Layer; n != nil {
			if layers[*n] == nil {
				layers[*n] = &WaitLayer{Layer: *n}
			}
			layers[*n].Add(&w.Tensors[i].WaitFigures)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(layers)) {
		w.Layers = append(w.Layers, *layers[n])
	}
	for _, p := range w.phases {
		w.Phases = append(w.Phases, *p)
	}
	slices.SortFunc(w.Phases, func(a, b WaitPhase) int {
		at := func(name string) int {
			if i := slices.Index(phaseOrder, name); i >= 0 {
				return i
			}
			return len(phaseOrder)
		}
		return cmp.Or(cmp.Compare(at(a.Phase), at(b.Phase)), cmp.Compare(a.Phase, b.Phase))
	})
	if o := w.Order; o != nil {
		o.Ordered = o.InOrder == o.Tensors
	}
	const top = 10
	for i := range w.Rows {
		if w.Rows[i].WaitNS > 0 {
			w.Slowest = append(w.Slowest, i)
		}
	}
	slices.SortStableFunc(w.Slowest, func(a, b int) int {
		return cmp.Compare(w.Rows[b].StalledNS, w.Rows[a].StalledNS)
	})
	w.Slowest = slices.Clip(w.Slowest[:min(len(w.Slowest), top)])
	w.note()
}

// note says in words what a reader of the figures has to know.
func (w *Waits) note() {
	w.Notes = []string{}
	say := func(format string, args ...any) { w.Notes = append(w.Notes, fmt.Sprintf(format, args...)) }
	if text := w.Lines.warning(); text != "" {
		say("%s", text)
	}
	if !w.Sealed {
		say("the recording has no total: it is live, or was cut off, or is one of intervals; of each line only the " +
			"places that it lists are counted")
	}
	for _, cause := range slices.Sorted(maps.Keys(w.Total.Lost)) {
		if words := lostWords[cause]; words != "" {
			say("%d %s", w.Total.Lost[cause], words)
		} else {
			say("%d lost: %s", w.Total.Lost[cause], cause)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(w.Total.Missing)) {
		say("not recorded: %s: %s", what, w.Total.Missing[what])
	}
	if w.Beyond > 0 {
		say("%d further executions are in the sums, and not in the list", w.Beyond)
	}
}

// lostWords say what the causes of a total mean.
var lostWords = map[string]string{
	"ring_full":        "events LOST: the collector came too late to the ring buffer",
	"threads_full":     "times LOST that a thread could not be followed: there were too many",
	"requests_full":    "block requests LOST: there were too many at once",
	"faults_open":      "page faults never returned, or by a signal: they are not counted",
	"faults_unknown":   "page faults had begun before the recording: they are not counted",
	"graphs_told_late": "executions were reported after their events had been counted elsewhere",
	"request_ends_unseen": "block requests are counted whose end was not seen: they were in flight at the end, " +
		"or their address was used again",
	"strays": "events came after their line was written, and stand in a later one",
}
