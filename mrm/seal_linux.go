package mrm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/mrm/verdict"
	"github.com/llamatap/llamatap/store/rundir"
)

// errLossy occurs when a recording lacks something.
var errLossy = errors.New("the recording is not whole")

// recorded finds the run that the recorder sealed, and makes sure that nothing is missing of it.
func (w *work) recorded() (dir string, m rundir.Metadata, err error) {
	dirs, _ := filepath.Glob(filepath.Join(w.path("out"), "*", "run_*"))
	if len(dirs) != 1 {
		return "", m, fmt.Errorf("%w: it left %d run directories: %s", errLossy, len(dirs), lastLine(w.path("tapped.log")))
	}
	m, err = rundir.ReadMetadata(dirs[0])
	switch {
	case err != nil:
		return "", m, fmt.Errorf("%w: %w", errLossy, err)
	case m.Lossy || m.Stopped != nil:
		return "", m, fmt.Errorf("%w: %s", errLossy, lastLine(w.path("tapped.log")))
	}
	return dirs[0], m, nil
}

// seal puts the run together: what was recorded, what was collected raw, what observing cost.
func (w *work) seal(ctx context.Context, o *observation) (string, *verdict.Validity, error) {
	from, m, err := w.recorded()
	if err != nil {
		return "", nil, err
	}
	var use struct {
		CPU  int64 `json:"collector_cpu_ns"`
		Peak int64 `json:"collector_peak_rss_kib"`
	}
	if err := json.Unmarshal(m.Extra["processes"], &use); err != nil || m.Tap == nil || m.Tap.OwnNS == nil {
		return "", nil, fmt.Errorf("%w: it does not tell what the collector used", errLossy)
	}
	o.cpu.Collector, o.cpu.Tap, o.peak = use.CPU, *m.Tap.OwnNS, use.Peak<<10
	if o.memory == 0 { // it ended before anybody looked
		o.memory = o.peak
	}
	o.memory += ownMemory()
	observer := o.observer()
	full := &verdict.Metadata{
		Metadata: m, Cell: w.cell.Cell, Observer: observer, Validity: verdict.Judge(&observer),
		Experiment: w.Config.identity(), Collector: w.Config.collected(m),
	}
	full.Llamatap, full.SealedBy = w.Version, "llamatap mrm run"
	raw := map[string]func(io.Writer) error{}
	for _, name := range []string{promptsName, baselineName, tappedName} {
		raw[name] = copyFile(w.path(name))
	}
	if sampled(full.Collector.Used) {
		raw[PerfScriptName] = func(out io.Writer) error { return writePerfScript(ctx, out, from) }
	}
	export := Export{From: from, Metadata: full, Raw: raw}
	switch report, err := ComputeAll(ctx, from, w.Config.Analysis); {
	case err == nil:
		export.Metrics = report.WriteMetrics
	case !errors.Is(err, memory.ErrNoTrace) || w.Config.Collector.GraphTrace != "off":
		return "", nil, err
	}
	x := RunExporter{Dir: w.Config.Output.Dir, Work: w.path("sealed")}
	dir, err := x.Export(export)
	return dir, &full.Validity, err
}

// identity is the experiment as metadata tell of it.
func (c *Config) identity() verdict.Experiment {
	return verdict.Experiment{
		Name: c.Experiment.Name, Seed: uint32(c.Experiment.Seed), Repetitions: int(c.Experiment.Repetitions), ConfigSHA256: c.sha256,
	}
}
