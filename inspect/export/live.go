package export

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// DefaultWindow is how many tokens a Live shuffles at a time.
const DefaultWindow = 1 << 17

// LiveOptions say what a Live writes.
type LiveOptions struct {
	Dir     string // the dataset: a folder that does not exist
	Seed    uint64
	ShardMB int64       // size of a shard's elements as float32, in 10⁶ bytes; 0 = 256
	Window  int64       // tokens that are shuffled together; 0 = DefaultWindow
	DType   codec.DType // that F32 elements are rounded to: F32, F16 or BF16
	Results string      // file of 'llamatap run --prompts --results', which is written meanwhile; "" = none
	RunID   string
	Model   string
	Text    func(token int32) string // of a token; "" where there is none
}

// Captured is what llamatap.json says of a dataset that was written while the model ran.
type Captured struct {
	Complete  bool   `json:"complete"` // the run has ended, and its last window is written
	Tokens    int64  `json:"tokens"`   // computed, of which Rows have rows
	Prompts   int64  `json:"prompts"`  // whose rows are all in the shards
	DType     string `json:"dtype"`    // that F32 elements were rounded to
	Saturated uint64 `json:"saturated,omitempty"`
	Underflow uint64 `json:"underflow,omitempty"`
}

// Live writes a dataset while the model runs: the bytes that Write makes of the run with the same Seed, ShardMB and
// Window, but for what they say of their source. Rows wait in a spill per range of keys, on the disk, for their window
// to end; then its shards are written by a goroutine while the next window fills. If that one is full, too, Append
// waits. Its methods are for one goroutine. A killed process leaves whole shards, and llamatap.json says how many
// prompts they hold.
type Live struct {
	o       LiveOptions
	d       *dataset
	blocks  map[tensorKey][]byte // of tensors in pieces
	order   []uint64             // of executions whose rows are kept
	scratch []byte
	columns bool // shards are written: no column may come
	losses  codec.Losses
	tokens  int64
	prompts *promptLog
	keys    map[int64]map[promptKey]bool // prompts with rows in each window that has not ended
	queue   chan due
	pressed atomic.Bool // a window waits for the one before it
	ended   atomic.Bool
	failed  atomic.Pointer[error]
	done    chan struct{}
	at      int64 // of the results that were read
	pending taken // since the last whole tensor
	newest  taken // of the execution that came last
	whole   int   // tensors of it
	within  *window
	kept    taken // of windows whose shards are written; the writer's
}

// due is a window that has ended, with what is known by then.
type due struct {
	*window
	captured Captured
	keys     map[promptKey]bool // prompts with rows in it
}

// taken counts packets, and the bytes of their tensors.
type taken struct {
	packets, bytes uint64
}

func (t *taken) add(o taken) {
	t.packets += o.packets
	t.bytes += o.bytes
}

// keptExecutions is of how many executions a Live keeps the rows: packets follow their execution.
const keptExecutions = 64

// NewLive begins a dataset.
func NewLive(o LiveOptions) (*Live, error) {
	o.Window = cmp.Or(o.Window, DefaultWindow)
	if _, err := os.Lstat(o.Dir); err == nil {
		return nil, fmt.Errorf("--tap-dataset %s %w: choose another place, or remove it", o.Dir, ErrExists)
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, "data"), 0o700); err != nil {
		return nil, fmt.Errorf("--tap-dataset: %w: choose another place", err)
	}
	e := &exporter{
		o:      Options{Form: Dataset, Seed: o.Seed, ShardMB: o.ShardMB, Window: o.Window},
		draft:  draft{Draft: &rundir.Draft{Dir: o.Dir, Final: o.Dir}},
		source: source{run: &tensors.Run{Path: o.Dir}, ctx: context.Background(), choose: &Selection{}},
	}
	e.begin()
	l := &Live{
		o: o, d: e.newDataset(&arrays{byKey: map[arrayKey]*array{}}, Provenance{Version: 1, Form: Dataset,
			Source: Source{RunID: o.RunID}, Model: o.Model}),
		blocks: map[tensorKey][]byte{}, queue: make(chan due), done: make(chan struct{}),
		prompts: newPromptLog(o.Results != ""), keys: map[int64]map[promptKey]bool{},
	}
	l.d.ranges, l.d.prompts, l.d.kept = windowRanges, promptIDs{}, map[promptKey]int64{}
	l.d.text = func(_ int64, id int32) string { return o.Text(id) }
	if err := l.d.attribute(); err != nil {
		return nil, err
	}
	go l.write()
	return l, nil
}

// Execution takes the rows of a micro-batch; its packets follow.
func (l *Live) Execution(e *stream.Execution) error {
	if len(e.Rows) == 0 {
		return l.failure()
	}
	if err := checkRows(l); err != nil {
		return err
	}
	rows := slices.Clone(e.Rows)
	for i := range rows {
		rows[i].Seqs = slices.Clone(rows[i].Seqs)
		l.note(&rows[i], e.Exec)
	}
	l.tokens += int64(len(rows))
	if l.order = append(l.order, e.Exec); len(l.order) > keptExecutions {
		delete(l.d.execs, l.order[0])
		l.order = l.order[1:]
	}
	l.d.execs[e.Exec] = rows
	l.newest, l.whole, l.within = taken{}, 0, nil
	for _, w := range l.d.ended(e.TokenFirst) {
		l.writeWindow(w)
	}
	return l.failure()
}

// Retract takes back the newest execution, which failed, as one does that a signal aborts. It returns false where that
// cannot be done: tensors of it came, or others are among executions first to last.
func (l *Live) Retract(first, last uint64) bool {
	n := len(l.order) - 1
	if n < 0 || first > l.order[n] || last < l.order[n] || n > 0 && first <= l.order[n-1] ||
		l.newest != (taken{}) || l.pending != (taken{}) {
		return false
	}
	l.tokens -= int64(len(l.d.execs[l.order[n]]))
	delete(l.d.execs, l.order[n])
	l.order = l.order[:n]
	return true
}

// note notes the prompt of a row.
func (l *Live) note(r *label.Row, exec uint64) {
	if len(r.Seqs) == 0 || r.Index < 0 {
		return
	}
	number, key := r.Index/l.o.Window, promptKey{r.Seqs[0], r.Request}
	l.prompts.row(key, r.Pos == 0, exec)
	if l.o.Results != "" && r.Request >= 0 {
		if l.keys[number] == nil {
			l.keys[number] = map[promptKey]bool{}
		}
		l.keys[number][key] = true
	}
}

// checkRows refuses tensors of which tokens have no row before shards are written without these tokens.
func checkRows(l *Live) error {
	most := int64(0)
	for _, a := range l.d.all.all {
		most = max(most, a.count)
	}
	for _, a := range l.d.all.all {
		if a.count < most {
			return fmt.Errorf("--tap-dataset %s: no row of %s for %d of %s (the last layer computes output rows "+
				"only): leave it out, with --tap-layer, or give run --prompts --all-rows", l.o.Dir, a.label,
				most-a.count, present.Plural(most, "token"))
		}
	}
	return nil
}

// Append takes a packet, whose elements are data; it is not used after.
func (l *Live) Append(p *stream.Packet, data []byte) error {
	l.pending.add(taken{1, uint64(len(data))})
	packet, from := *p, codec.DTypeOf(p.SrcType)
	packet.DType, packet.RawBytes = from, int64(len(data))
	if from == codec.F32 && l.o.DType != codec.F32 {
		var losses codec.Losses
		var err error
		if l.scratch, losses, err = codec.Convert(l.scratch[:0], data, from, l.o.DType); err != nil {
			return err
		}
		data, packet.DType, packet.RawBytes = l.scratch, l.o.DType, int64(len(l.scratch))
		l.losses.Saturated += losses.Saturated
		l.losses.Underflow += losses.Underflow
	}
	key := tensorKey{p.Ctx, p.Name}
	if p.Blocks > 1 {
		if p.Block == 0 {
			l.blocks[key] = l.blocks[key][:0]
		}
		l.blocks[key] = append(l.blocks[key], data...)
		data = l.blocks[key]
	}
	err := l.d.addPacket(0, &packet, func(pc *piece) error {
		if err := l.column(pc); err != nil {
			return err
		}
		if err := l.d.put(pc, data); err != nil {
			return err
		}
		w, err := l.d.windowOf(pc.rows[len(pc.rows)-1].index) // of several the last one, whose shards come last
		if err == nil {
			w.taken.add(l.pending)
			l.newest.add(l.pending)
			l.pending, l.within = taken{}, w
			l.whole++
		}
		return err
	})
	return errors.Join(err, l.failure())
}

// column makes a column of a tensor that is new.
func (l *Live) column(p *piece) error {
	all := l.d.all
	a := all.byKey[keyOf(p)]
	if a == nil {
		if l.columns {
			return fmt.Errorf("--tap-dataset %s: tensor %s was not there in the first %d tokens: leave it out", l.o.Dir,
				p.Name, l.o.Window)
		}
		a = newArray(p)
		a.label = a.tensor
		for _, other := range all.all {
			if other.ctx != a.ctx {
				return fmt.Errorf("--tap-dataset %s: tensors of contexts %d and %d are captured: a dataset has those "+
					"of one",
					l.o.Dir, other.ctx, a.ctx)
			}
			if other.tensor == a.tensor {
				a.label += "@" + shapeText(a.shape)
			}
		}
		if err := l.d.addColumn(a); err != nil {
			return err
		}
		all.byKey[keyOf(p)], all.all = a, append(all.all, a)
	}
	a.count += int64(len(p.rows))
	return nil
}

// writeWindow passes a window on that has ended.
func (l *Live) writeWindow(w *window) {
	l.columns = true
	d := due{w, l.captured(), l.keys[w.number]}
	delete(l.keys, w.number)
	select {
	case l.queue <- d:
	default:
		l.pressed.Store(true)
		l.queue <- d
		l.pressed.Store(false)
	}
}

func (l *Live) captured() Captured {
	return Captured{Tokens: l.tokens, DType: l.o.DType.String(), Saturated: l.losses.Saturated,
		Underflow: l.losses.Underflow}
}

// write writes the shards of windows that have ended.
func (l *Live) write() {
	defer close(l.done)
	var before map[promptKey]bool
	for w := range l.queue {
		if l.failure() != nil {
			continue
		}
		err := l.names(w.keys)
		if err == nil {
			err = l.d.finish(w.window)
		}
		if err == nil {
			l.prompts.note(l.d)
			w.captured.Prompts = l.prompts.count(false)
			l.d.info.Captured = &w.captured
			err = l.d.describe()
		}
		if err != nil {
			l.failed.Store(&err)
		} else {
			l.kept.add(w.taken)
		}
		for key := range before {
			if !w.keys[key] {
				delete(l.d.prompts, key)
			}
		}
		before = w.keys
	}
}

func (l *Live) failure() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// names reads the ids of a window's prompts from the results. The last of them ends in the next window: it is waited
// for until that window is full, too, or the run has ended.
func (l *Live) names(of map[promptKey]bool) error {
	if l.o.Results == "" {
		return nil
	}
	for {
		last := l.pressed.Load() || l.ended.Load()
		if err := l.read(); err != nil || last {
			return err
		}
		missing := false
		for key := range of {
			_, known := l.d.prompts[key]
			missing = missing || !known
		}
		if !missing {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// read reads whole lines of the results.
func (l *Live) read() error {
	file, err := os.Open(l.o.Results)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	text := make([]byte, max(0, info.Size()-l.at))
	n, err := file.ReadAt(text, l.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	text = text[:bytes.LastIndexByte(text[:n], '\n')+1]
	l.at += int64(len(text))
	return l.d.prompts.read(bytes.NewReader(text))
}

// Close writes what is left. The dataset is whole after Finish. cut: recording was cut off, and what came of an
// execution that lacks tensors is not kept.
func (l *Live) Close(cut bool) error {
	l.ended.Store(true)
	if cut && l.within != nil && l.whole < len(l.d.all.all) {
		l.within.taken.packets -= l.newest.packets
		l.within.taken.bytes -= l.newest.bytes
	}
	for _, w := range l.d.takeWindows(math.MaxInt64) {
		if l.failure() == nil {
			l.writeWindow(w)
		}
	}
	close(l.queue)
	<-l.done
	return errors.Join(l.failure(), os.RemoveAll(l.d.draft.Path(spillFolder)))
}

// Finish completes llamatap.json with the metadata of the run; whole: it was recorded to its end.
func (l *Live) Finish(metadata any, whole bool) error {
	captured := l.captured()
	captured.Complete = whole && l.failure() == nil
	if l.o.Results != "" && l.failure() == nil {
		if err := l.read(); err != nil {
			return err
		}
	}
	l.prompts.note(l.d)
	captured.Prompts = l.prompts.count(captured.Complete)
	l.d.info.Metadata, l.d.info.Captured = metadata, &captured
	if err := l.d.describe(); err != nil {
		return err
	}
	return rundir.Sync(l.o.Dir)
}

// LiveResult is what a Live has written.
type LiveResult struct {
	Dir                           string
	Rows, LeftOut, Prompts, Bytes int64
	Shards                        int
	Packets, TensorBytes          uint64 // that are in the shards, or left out
}

// Result says what was written, after Close.
func (l *Live) Result() LiveResult {
	l.d.measure()
	r := LiveResult{Dir: l.o.Dir, Rows: l.d.info.Rows, LeftOut: l.d.info.LeftOut, Shards: l.d.info.Shards,
		Bytes: l.d.result.Bytes, Packets: l.kept.packets, TensorBytes: l.kept.bytes}
	if l.d.info.Captured != nil {
		r.Prompts = l.d.info.Captured.Prompts
	}
	return r
}

// Held is how many bytes the dataset takes on the disk at most, with what waits for its shard; waiting are those that
// are in no file yet. It may be called by any goroutine.
func (l *Live) Held() (all, waiting int64) { return l.d.held.Load(), l.d.waiting.Load() }
