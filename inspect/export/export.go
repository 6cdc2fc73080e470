package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/codec"
)

// Form is what an export becomes.
type Form string

// The forms.
const (
	NPY         Form = "npy"         // a folder of NumPy files
	Safetensors Form = "safetensors" // one file, or several where it would be large
	Parquet     Form = "parquet"     // one file, one row per tensor and token
	Arrow       Form = "arrow"       // the same as an Arrow file
	Strap       Form = "strap"       // a stream and a tokens file as STRAP-LLM writes them
	Dataset     Form = "dataset"     // a folder of shuffled Parquet shards to train on
)

// Forms are all forms, as help lists them.
var Forms = []Form{NPY, Safetensors, Parquet, Arrow, Strap, Dataset}

// Check reports a form that there is not.
func (f Form) Check() error {
	switch {
	case slices.Contains(Forms, f):
		return nil
	case f == "":
		return fmt.Errorf("no form: give one with --to, of %v", Forms)
	}
	return fmt.Errorf("--to %q: use one of %v", f, Forms)
}

// Options say what is exported, as what and where to.
type Options struct {
	Form    Form
	Select  Selection
	Out     string   // "" = in the run directory, below derived/
	Force   bool     // replace what is there
	ShardMB int64    // of Safetensors and Dataset: size of a file, in 10⁶ bytes; 0 = 5000 and 256
	Codec   codec.ID // of Strap: None, LZ4 or Zstd
	Seed    uint64   // of Dataset
	Window  int64    // of Dataset: so many tokens are shuffled together; 0: all
	// Complete, of Dataset, leaves out tokens that lack a chosen tensor. Without it such a choice is an error.
	Complete bool
	// of Dataset: file that 'llamatap run --prompts --results' wrote, which names the prompts; "" = none
	Results string

	// Progress, if any, is called with the packets of the stream that were gone through, of all. A form may go
	// through them twice.
	Progress func(done, total int64)

	Version string   // of the program, for the record of what was derived
	Command []string // that made it
}

// Result says what was written.
type Result struct {
	Path    string
	Files   int
	Bytes   int64
	Rows    int64 // one per token of a tensor, or per token of a dataset
	Tensors int
	Notes   []string // what the user should know
}

// exporter is one export under way.
type exporter struct {
	source
	o      Options
	draft  draft
	result Result
}

// places are the names of exports below derived/.
var places = map[Form]string{
	NPY: "npy", Safetensors: "activations.safetensors", Parquet: "activations.parquet", Arrow: "activations.arrow",
	Strap: "strap.stream", Dataset: "dataset",
}

// Write exports a run. When ctx ends, nothing is left behind.
func Write(ctx context.Context, run *tensors.Run, o Options) (*Result, error) {
	if err := errors.Join(o.Form.Check(), o.Select.Check()); err != nil {
		return nil, err
	}
	final, derived, err := o.destination(run)
	if err != nil {
		return nil, err
	}
	e := &exporter{o: o}
	e.source = source{run: run, ctx: ctx, choose: &e.o.Select, progress: o.Progress}
	if e.draft, err = newDraft(final, o.Force); err != nil {
		return nil, err
	}
	defer e.draft.Discard()
	e.result.Path = e.draft.Final
	if err := e.write(); err != nil {
		return nil, e.explain(err)
	}
	if len(e.torn) > 0 {
		e.note("of %s pieces are missing in the capture; tensors that lack one are left out",
			listed(slices.Sorted(maps.Keys(e.torn))))
	}
	if len(e.rebuilt) > 0 {
		e.note("the index was repaired: of some rows of %s type and shape are assumed, and tokens unknown",
			listed(slices.Sorted(maps.Keys(e.rebuilt))))
	}
	if assumed := run.Stream.Info().Assumed; assumed != "" {
		e.note("%s", assumed)
	}
	if derived {
		err = e.remember()
	}
	return &e.result, err
}

// The forms of an export.
type (
	npyExport         struct{ *exporter }
	safetensorsExport struct{ *exporter }
	tableExport       struct{ *exporter }
	strapExport       struct{ *exporter }
)

func (e *exporter) write() error {
	switch e.o.Form {
	case NPY:
		return npyExport{e}.npy()
	case Safetensors:
		return safetensorsExport{e}.safetensors()
	case Parquet, Arrow:
		return tableExport{e}.table()
	case Strap:
		return strapExport{e}.strap()
	}
	return e.dataset()
}

// destination returns where the export goes, and whether that is in the run directory.
func (o *Options) destination(run *tensors.Run) (path string, derived bool, err error) {
	path = o.Out
	if path == "" {
		if run.Kind != tensors.KindRun {
			return "", false, errors.New("a stream outside of a run directory: say with -o where the export goes")
		}
		return filepath.Join(run.Path, "derived", places[o.Form]), true, nil
	}
	inside, err := filepath.Rel(run.Path, path)
	return path, err == nil && run.Kind == tensors.KindRun &&
		strings.HasPrefix(inside, "derived"+string(filepath.Separator)), nil
}

// explain says what to do about an error.
func (e *exporter) explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("no room for %s: %w: make room, choose less, or another place with -o; nothing is left of it",
			e.draft.Final, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: choose another place with -o", err)
	}
	return err
}

func (e *exporter) note(format string, args ...any) {
	e.result.Notes = append(e.result.Notes, fmt.Sprintf(format, args...))
}

func (e *exporter) base() string { return filepath.Base(e.draft.Final) }

// writeFile makes a small file of the draft.
func (e *exporter) writeFile(name string, data []byte) error {
	f, err := e.draft.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// count adds up what arrays hold.
func (e *exporter) count(all *arrays) {
	seen := map[tensorKey]bool{}
	for _, a := range all.all {
		seen[tensorKey{a.ctx, a.tensor}] = true
		e.result.Rows += a.count
	}
	e.result.Tensors = len(seen)
	e.measure()
}

// measure counts the files of the draft and their bytes.
func (e *exporter) measure() {
	e.result.Files, e.result.Bytes = 0, 0
	filepath.WalkDir(e.draft.Dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			e.result.Files++
			e.result.Bytes += info.Size()
		}
		return nil
	})
}
