package mrm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/memtrace"
)

// errLossy occurs when a recording lacks something.
var errLossy = errors.New("the recording is not whole")

// seal puts the run together: what was recorded, what was collected raw, what observing cost.
func (w *work) seal(ctx context.Context, o *observation, r recording) (string, *memory.Validity, error) {
	c, observer := w.Config, o.observer()
	full := &memory.Metadata{
		Metadata: r.metadata, Cell: w.cell.Cell, Observer: observer, Validity: memory.Judge(&observer),
		Experiment: memory.Experiment{
			Name: c.Experiment.Name, Seed: uint32(c.Experiment.Seed), Repetitions: int(c.Experiment.Repetitions),
			ConfigSHA256: c.sha256,
		},
		Engine:    memory.Engine{Type: c.Engine.Type, Command: c.Engine.Command, Program: w.cell.Source.Program},
		Collector: c.Collector.collected(r.metadata),
	}
	full.Llamatap, full.SealedBy = w.Version, "llamatap mrm run"
	raw := map[string]func(io.Writer) error{}
	for _, name := range r.raw {
		raw[name] = copyFile(w.path(name))
	}
	if slices.ContainsFunc(full.Collector.Used, func(name string) bool { return perfEvents[name] != nil }) {
		raw[perfScriptName] = func(out io.Writer) error { return writePerfScript(ctx, out, r.dir) }
	}
	export := Export{From: r.dir, Metadata: full, Raw: raw}
	switch report, err := ComputeAll(ctx, r.dir, w.Config.Analysis); {
	case err == nil:
		n := int64(0)
		for i := range report.Samples {
			for _, kind := range report.Samples[i].Types {
				if kind.Type == memtrace.Other.String() {
					n += kind.Samples
				}
			}
		}
		if n > 0 && w.Config.failsUnknown {
			return "", nil, fmt.Errorf("%d samples belong to no region, and labeller.unknown_policy is fail_run; "+
				"give log_and_skip to keep the run", n)
		}
		export.Metrics = report.WriteMetrics
	case !errors.Is(err, memory.ErrNoTrace) || w.Config.Collector.GraphTrace != "off":
		return "", nil, err
	}
	x := RunExporter{Dir: w.Config.Output.Dir, Work: w.path("sealed")}
	dir, err := x.Export(export)
	return dir, &full.Validity, err
}
