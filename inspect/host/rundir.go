package host

import (
	"fmt"

	"github.com/llamatap/llamatap/store/rundir"
)

// The names that files of host collectors have in a run directory, those of STRAP-LLM behind them.
var (
	blockNames  = []string{rundir.BlockIOName, "tracepoints.jsonl"}
	systemNames = []string{rundir.SystemName}
	profNames   = []string{rundir.ProfName}
)

// InRun takes the files that were not named from a run directory. It is an error where it holds none.
func (o *Options) InRun(dir string) error {
	o.Run = dir
	if o.Block == "" {
		o.Block = find(dir, blockNames)
	}
	if o.System == "" {
		o.System = find(dir, systemNames)
	}
	if o.Prof == "" {
		o.Prof = find(dir, profNames)
	}
	if o.Block == "" && o.System == "" && o.Prof == "" {
		return fmt.Errorf("%s: neither %s nor %s in it: record a run with --tap-host block,system, or give files "+
			"with --input and --system-metrics",
			dir, blockNames[0], systemNames[0])
	}
	return nil
}

// find finds the first of some files in a run directory, or one that is still written; "" for none.
func find(dir string, names []string) string {
	for _, name := range names {
		if path, ok := rundir.Present(dir, name); ok {
			return path
		}
	}
	return ""
}
