package memory

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

// ImportOptions say what is imported. Files and Out are needed.
type ImportOptions struct {
	Files   []string    // texts of perf script, and files perf.data
	Fields  string      // of perf script -F, where texts do not show it; "": it is found out
	Out     string      // folder in which the run directory is made
	Version string      // llamatap's
	Echo    []string    // the command line as the user typed it
	Warn    func(error) // is called with each warning; nil: none
}

// ErrNothing occurs when files hold no sample of an access.
var ErrNothing = errors.New("nothing to import")

// imported is the entry for a file in metadata.json.
type imported struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Kind   string `json:"kind"` // perf.data, or perf script
	// of all times in the table: CLOCK_MONOTONIC of that machine, or perf's own
	Clock     string   `json:"clock,omitempty"`
	Events    []string `json:"events,omitempty"`
	Samples   uint64   `json:"samples"`
	NoAddress uint64   `json:"without_address,omitempty"`
	Lost      uint64   `json:"lost,omitempty"`
	Throttled uint64   `json:"throttled,omitempty"`
	Gaps      uint64   `json:"trace_gaps,omitempty"` // pieces of traces that lack what found no room
	// pieces in which samples were skipped, for one was being taken
	Collided uint64 `json:"trace_collisions,omitempty"`
	Bad      uint64 `json:"undecodable,omitempty"`
	FirstBad string `json:"first_undecodable,omitempty"`
	Error    string `json:"error,omitempty"` // where it is torn
}

// importer puts the samples of files into one table.
type importer struct {
	*run
	o      ImportOptions
	pid    int32 // whose regions are listed: that of the first sample, 0 = none yet
	spaces *sample.Spaces
	queue  *sample.Queue
	newest int64
	files  []imported
}

// Import reads files of the program perf into a run directory, and seals it. Times are those of the files. Mappings in
// perf.data become regions: all of the process whose sample comes first, of others those that samples lie in. Texts
// have none.
func Import(o ImportOptions) (Result, error) {
	if o.Warn == nil {
		o.Warn = func(error) {}
	}
	for _, name := range o.Files { // before anything is made
		if info, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return Result{}, fmt.Errorf("%s: there is no such file: give texts of perf script, or perf.data", name)
		} else if err != nil {
			return Result{}, err
		} else if info.IsDir() {
			return Result{}, fmt.Errorf("%s is a folder: give files of perf script or perf.data", name)
		}
	}
	r, err := newRun(ledger.TableOptions{Foreign: true}, o.Out, strings.TrimSuffix(filepath.Base(o.Files[0]),
		filepath.Ext(o.Files[0])), o.Warn)
	if err != nil {
		return Result{}, err
	}
	r.meta.Llamatap, r.meta.Command, r.meta.SealedBy = o.Version, o.Echo, "llamatap memory import"
	m := &importer{run: r, o: o, spaces: sample.NewSpaces(), queue: sample.NewQueue(os.TempDir())}
	m.use = m.usage
	defer m.queue.Close()
	for _, name := range o.Files {
		if err := m.file(name); err != nil {
			m.remove()
			return Result{}, fmt.Errorf("%s: %w", name, addTruncatedHint(err))
		}
	}
	m.list()
	m.extra("imported", m.files)
	use, err := m.seal()
	return Result{Dir: m.dir.Path(), Use: use}, err
}

// reader is what both kinds of files have in common.
type reader interface {
	Next(*memtrace.Access) error
	Stats() perf.FileStats
}

// file reads one file. A torn one is read as far as it is whole.
func (m *importer) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	about := imported{File: name, Bytes: info.Size(), SHA256: hex.EncodeToString(sum.Sum(nil))}
	from, err := m.open(f, info.Size(), &about)
	if err != nil {
		return err
	}
	if err = m.read(from); err != nil && from.Stats().Samples == 0 {
		return err
	}
	stats := from.Stats()
	if stats.Samples == 0 {
		return fmt.Errorf("%w: it has no sample; record with perf mem record, or perf record -d", ErrNothing)
	}
	if d, ok := from.(*perf.Data); ok {
		for _, e := range d.Events() {
			about.Events = append(about.Events, e.Name)
		}
		about.Clock = d.Clock()
	}
	about.Samples, about.NoAddress, about.Lost, about.Throttled, about.Bad = stats.Samples, stats.NoAddress, stats.Lost,
		stats.Throttles, stats.Bad
	about.Gaps, about.Collided = stats.Gaps, stats.Collided
	if stats.FirstBad != nil {
		about.FirstBad = stats.FirstBad.Error()
	}
	if err != nil {
		about.Error = err.Error()
		m.o.Warn(fmt.Errorf("%s: %w; what stands before is imported", name, addTruncatedHint(err)))
	}
	m.files = append(m.files, about)
	return nil
}

// addTruncatedHint says of an error what helps if a file ends too early.
func addTruncatedHint(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it was cut off while it was copied or written, copy or record it again", err)
	}
	return err
}

// open finds out which kind a file is.
func (m *importer) open(f *os.File, size int64, about *imported) (reader, error) {
	head, _ := bufio.NewReader(io.NewSectionReader(f, 0, 8)).Peek(8)
	if bytes.HasPrefix(head, []byte("PAR1")) {
		return nil, fmt.Errorf("%w: it is a Parquet table, and no recording of perf; 'llamatap memory' reads the run "+
			"directory that it lies in", ErrNothing)
	}
	if !bytes.Equal(head, []byte("PERFILE2")) && !bytes.Equal(head, []byte("2ELIFREP")) {
		about.Kind = "perf script"
		return perf.NewText(f, perf.TextOptions{Fields: m.o.Fields})
	}
	about.Kind = "perf.data"
	d, err := perf.NewData(f, size)
	if err != nil {
		return nil, err
	}
	d.Others(m.spaces.Observe)
	return d, nil
}

// Samples are written once some others were read after them, and once they are so much older than the newest: perf
// writes what each CPU had, one after the other.
const (
	readAhead = 1 << 13
	olderBy   = int64(time.Second)
)

func (m *importer) read(from reader) error {
	var a memtrace.Access
	for n := 1; ; n++ {
		err := from.Next(&a)
		if err == io.EOF {
			break
		}
		if err != nil {
			m.flush(math.MaxInt64)
			return err
		}
		if m.pid == 0 {
			m.pid = a.PID
		}
		m.put(&a)
		m.newest = max(m.newest, a.TimeNS)
		if n%readAhead == 0 {
			m.flush(m.newest - olderBy)
		}
	}
	m.flush(math.MaxInt64)
	return nil
}

// put keeps a sample until it is written. One with a symbol, which the queue does not keep, is written at once: texts
// have no mappings.
func (m *importer) put(a *memtrace.Access) {
	if a.Symbol != "" {
		m.label(a)
		return
	}
	m.queue.Put(a)
}

func (m *importer) flush(upto int64) {
	m.spaces.Gather()
	m.queue.Before(upto, m.label)
}

func (m *importer) label(a *memtrace.Access) {
	m.spaces.Apply(a.TimeNS)
	row := sample.Row{Access: *a, Moment: sample.NoMoment, Block: -1}
	if s := m.spaces.Of(a.PID); s != nil {
		row.Hit = s.Map().Address(a.Addr, a.TimeNS)
	}
	if row.Hit.Region != nil {
		m.list().Adopt(row.Hit.Region, a.PID)
	}
	m.write(&row)
}

// list is the region map that is written: that of the first sample's process where it is known.
func (m *importer) list() *memtrace.RegionMap {
	if m.regions != nil {
		return m.regions
	}
	m.regions = memtrace.NewRegionMap()
	if s := m.spaces.Of(m.pid); s != nil {
		m.regions = s.Map()
		m.regions.OfProcess(m.pid)
	}
	return m.regions
}

// usage is the entry for all files in metadata.json.
func (m *importer) usage() *sample.Use {
	u := &sample.Use{Collectors: []sample.CollectorUse{}}
	u.LostQueue, _ = m.queue.Lost()
	for k := range m.tallies {
		if t := m.tallies[k]; t.Rows > 0 {
			u.Collectors = append(u.Collectors, sample.CollectorUse{Collector: memtrace.Collector(k).String(),
				Samples: t.Rows, Tally: t})
		}
	}
	for i := range m.files { // whose loss it was, perf does not say
		if len(u.Collectors) > 0 {
			first := &u.Collectors[0]
			first.LostRing += m.files[i].Lost
			first.Throttled += m.files[i].Throttled
			first.Undecodable += m.files[i].Bad
			first.WithoutAddress += m.files[i].NoAddress
		}
		if gaps := m.files[i].Gaps; gaps > 0 {
			u.Missing = append(u.Missing, fmt.Sprintf("%s: %d pieces of its trace lack what found no room: perf "+
				"record -m ,64M makes more, longer periods need less", m.files[i].File, gaps))
		}
		if m.files[i].Error != "" {
			u.Error = m.files[i].File + ": " + m.files[i].Error
		}
	}
	return u
}
