package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/inspect/host"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
)

// Run is what the files of a run say. What was not recorded is nil.
type Run struct {
	Path      string
	State     resources.State
	Model     string
	Metadata  *rundir.Metadata
	Resources *resources.Report
	Waits     *host.Waits
	Compute   *host.ComputeUse // of system_metrics.jsonl
	KV        *resources.KV
	Requests  *resources.Requests
	// Notes say what the figures lack: losses, bad lines, a run that is live.
	Notes []string

	steps *steps // of the same log as Resources
	data  []resources.Data
}

// kvPoints is in how many parts of the time the use of the KV cache is read.
const kvPoints = 240

// Read reads a run directory, live or sealed. It returns early when ctx is done.
func Read(ctx context.Context, dir string, progress func(done, total int64)) (*Run, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no such folder: give a run directory; 'llamatap runs' lists them", dir)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is a file: give the run directory that it lies in", dir)
	}
	described, err := resources.ReadRun(dir)
	if described == nil {
		return nil, fmt.Errorf("%w: give a run directory; 'llamatap runs' lists them", err)
	}
	r := &Run{Path: dir, State: described.State, Model: described.Model, data: described.Data}
	if r.Metadata, err = rundir.FindMetadata(dir); err != nil {
		r.note("what stands in %s is missing here: %v", rundir.MetadataName, err)
	}
	if back := r.Metadata.EventsGivenBack(dir); back != "" {
		r.note("%s: figures of graphs, tokens and causes are of the others", back)
	}
	if r.State != resources.StateSealed {
		r.note("the run is not sealed (%s): the figures are of what was written so far", r.State)
	}
	if err := r.readEvents(ctx, progress); err != nil {
		return nil, err
	}
	if err := r.readHost(); err != nil {
		r.note("what the kernel did cannot be read: %v", err)
	}
	if r.KV, err = resources.OpenKV(ctx, dir, kvPoints, nil); err != nil && r.recorded("KV cache") {
		r.note("the table of the KV cache cannot be read: %v", err)
	}
	if r.Requests, err = resources.OpenRequests(ctx, dir); err != nil && r.recorded("requests") {
		r.note("the table of requests cannot be read: %v", err)
	}
	if r.Requests != nil && r.Resources != nil && len(r.Resources.Energy) > 0 {
		if err := r.Requests.ReadEnergy(ctx, dir); err != nil {
			r.note("the energy of requests cannot be read: %v", err)
		}
	}
	return r, ctx.Err()
}

// recorded reports whether there are files of a kind of data, which may be damaged.
func (r *Run) recorded(what string) bool {
	return slices.ContainsFunc(r.data, func(d resources.Data) bool { return d.What == what })
}

// noKV is why there is no table of the KV cache.
func (r *Run) noKV() string {
	if r.State != resources.StateSealed && r.Metadata != nil && slices.Contains(r.Metadata.Recorders(), "kv") {
		return "the table of the KV cache is written when the run is sealed"
	}
	return "not recorded: --tap-kv"
}

// Size is how many bytes Read reads of a run directory.
func Size(dir string) int64 {
	size := resources.LogSize(dir)
	for _, name := range []string{rundir.WaitsName, rundir.SystemName, rundir.LivesName, rundir.RequestsName} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			size += info.Size()
		}
	}
	return size
}

func (r *Run) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// readEvents reads the log of resource events, where there is one.
func (r *Run) readEvents(ctx context.Context, progress func(done, total int64)) (err error) {
	if !resources.HasLog(r.Path) {
		return nil
	}
	var failed error
	read := make(chan struct{})
	go func() { // beside the sums: the two take the same time
		defer close(read)
		r.steps, failed = readSteps(ctx, r.Path)
	}()
	r.Resources, err = resources.Summarize(ctx, r.Path, func(*resources.TokenRow) {}, progress)
	<-read
	if r.Resources == nil || failed != nil { // with a report, err is of the metadata, which are read below
		return cmp.Or(failed, err)
	}
	for _, l := range r.Resources.Losses {
		r.note("%s got lost (%s): the figures are of the others", present.Plural(l.Count, l.Kind+" event"), l.Cause)
	}
	if n := r.Resources.BadLines; n > 0 {
		r.note("%s of the resource events cannot be read: the figures are of the others", present.Plural(n, "line"))
	}
	if n := r.steps.Beyond; n > 0 {
		r.note("%s did not fit into the bound of memory: at least as many prompt tokens as stated were processed "+
			"again", present.Plural(n, "token"))
	}
	return nil
}

// readHost reads what the kernel did, as far as it was recorded.
func (r *Run) readHost() error {
	if _, ok := rundir.Present(r.Path, rundir.WaitsName); ok {
		var err error
		if r.Waits, err = host.ReadWaits(r.Path); err != nil {
			r.note("%v", err)
		} else {
			for _, n := range r.Waits.Notes {
				r.note("%s: %s", rundir.WaitsName, n)
			}
		}
	}
	o := host.Options{}
	if _, ok := rundir.Present(r.Path, rundir.SystemName); !ok {
		return nil
	}
	if err := o.InRun(r.Path); err != nil {
		return err
	}
	analysis, err := host.Analyze(host.Options{System: o.System})
	if err != nil {
		r.note("%v", err)
		return nil
	}
	r.Compute = &analysis.Compute
	for cause, n := range analysis.System.Lost {
		if n > 0 {
			r.note("%s lacks %.0f %s: the figures are of the others", rundir.SystemName, n, cause)
		}
	}
	return nil
}

// settings are those of the run; empty where they are not known.
func (r *Run) settings() map[string]rundir.Setting {
	if r.Metadata == nil {
		return nil
	}
	return r.Metadata.Settings()
}
