package memory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/store/rundir"
)

// run is a run directory that is being written.
type run struct {
	dir     *rundir.Dir
	table   *ledger.Table
	out     *ledger.Writer
	offset  int64 // of Unix time
	regions *memtrace.RegionMap
	tallies sample.Tallies
	dropped uint64 // rows that the table did not take
	failed  error  // why something could not be written
	warn    func(error)
	use     func() *sample.Use // what was sampled until now
	meta    rundir.Metadata
	phases  phases
}

// ErrDisk occurs when what was recorded could not be written. The error that wraps it says what to do.
var ErrDisk = errors.New("the recording could not be written")

// newRun makes the directory below out, in a folder with a name. Of the table's options the folder is its own.
func newRun(o ledger.TableOptions, out, name string, warn func(error)) (*run, error) {
	if err := os.MkdirAll(out, 0o700); err != nil {
		return nil, fmt.Errorf("output folder %s: %w; choose another with -o", out, err)
	}
	now := time.Now()
	dir, err := rundir.Create(out, rundir.ModelID(name, ""), now)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another output folder with -o", err)
	}
	r := &run{dir: dir, warn: warn}
	o.Folder = dir
	r.table = ledger.NewTable(o)
	r.table.About(func() (key, value string) { return sample.MetadataKey, r.sum().Text() })
	r.out = r.table.Writer()
	r.meta = rundir.Metadata{
		Version: rundir.MetadataVersion, RunID: dir.ID(), Created: now.UTC(), SealedBy: "llamatap memory",
		Losses: []rundir.Loss{},
		Host:   rundir.ThisHost(), Extra: map[string]json.RawMessage{},
	}
	return r, nil
}

// write writes a row. Behind a failure of the disk rows are counted alone.
func (r *run) write(row *sample.Row) {
	r.phases.apply(row, row.TimeNS+r.offset)
	if err := row.Write(r.out, r.offset); err != nil {
		r.fail(err)
		r.dropped++
		return
	}
	r.tallies[row.Collector].Count(row)
}

// fail notes and reports the first error of the table.
func (r *run) fail(err error) {
	if err == nil || r.failed != nil {
		return
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w: the disk of %s is full; free room there, or choose another folder with -o", ErrDisk,
			r.dir.Path())
	}
	r.failed = err
	r.warn(err)
}

// sum is what was sampled until now, with what the table has lost of it.
func (r *run) sum() *sample.Use {
	u := r.use()
	_, lost := r.table.Rows()
	u.LostTable = uint64(lost) + r.dropped
	if err := r.table.Err(); err != nil && u.Error == "" {
		u.Error = err.Error()
	}
	u.Complete()
	return u
}

// seal completes the directory, and says what was sampled.
func (r *run) seal() (*sample.Use, error) {
	_ = r.out.Close()
	r.fail(r.table.Close())
	use := r.sum()
	err := r.writeMap()
	marks, failed := r.phases.finish(r.dir.CreateLive)
	if err = cmp.Or(err, failed); err != nil {
		r.fail(err)
		use.Error, use.Lossy = r.failed.Error(), true
	}
	if marks != nil {
		r.extra("markers", marks)
	}
	r.extra("memory_samples", use)
	r.meta.Ended = time.Now().UTC()
	err = r.dir.WriteJSON(rundir.MetadataName, r.meta)
	if err == nil {
		err = r.dir.Seal()
	}
	if err != nil {
		dir := r.dir.Path()
		err = fmt.Errorf("%w: %w; what was recorded is in %s, unsealed: when there is room again, 'llamatap verify "+
			"--repair %s' seals it", ErrDisk, err, dir, dir)
	}
	return use, err
}

// writeMap writes region_map.parquet.
func (r *run) writeMap() error {
	if r.regions == nil {
		return nil
	}
	file, err := r.dir.Create(rundir.RegionsName)
	if err != nil {
		return err
	}
	return errors.Join(ledger.WriteRegions(file, r.regions, memtrace.Doubts{}, r.offset), file.Close())
}

func (r *run) extra(name string, v any) {
	if text, err := json.Marshal(v); err == nil {
		r.meta.Extra[name] = text
	}
}

// remove removes the directory, in which nothing could be recorded.
func (r *run) remove() {
	_ = r.out.Close()
	_ = r.table.Close()
	os.RemoveAll(r.dir.Path())
	os.Remove(filepath.Dir(r.dir.Path())) // the folder of its name, if that was its only run
}
