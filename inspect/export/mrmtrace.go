package export

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// mrmFiles are those of a run, in the order in which they are written.
var mrmFiles = []string{rundir.TraceName, rundir.RegionsName, rundir.LivesName, "metrics.csv", rundir.MetadataName,
	"prompt_outputs.json"}

// mrmTrace is an export for mrm-trace under way.
type mrmTrace struct {
	dir    string // of the run
	draft  draft
	meta   rundir.Metadata
	trace  *mrmTracer
	report *memory.Report
	about  mrmMetadata
}

// MRMTrace writes a run's accesses to memory into a results folder of mrm-trace (PyPI, 0.1), out, which may hold
// other runs: MACHINE/MODEL/RUN with its tables, and a line of manifest.csv. docs/EXPORT.md says what stands for
// what. With force it replaces the run if it is there, else that is ErrExists. Nothing is left of an export that
// fails. A run without accesses is memory.ErrNoTrace.
func MRMTrace(ctx context.Context, dir, out string, force bool) (*Result, error) {
	e := &mrmTrace{dir: dir}
	var err error
	if e.meta, err = rundir.ReadMetadata(dir); err != nil {
		return nil, fmt.Errorf("%w: give a run directory", err)
	}
	e.about = e.describe()
	if e.draft, err = newDraft(filepath.Join(out, e.about.Machine,
		slug(e.about.Model.ID), e.meta.RunID), force); err != nil {
		return nil, err
	}
	defer e.draft.Discard()
	if err := e.write(ctx); err != nil {
		return nil, err
	}
	if err := e.draft.publishFolder(); err != nil {
		return nil, err
	}
	if err := e.list(filepath.Join(out, "manifest.csv")); err != nil {
		return nil, err
	}
	return &Result{Path: e.draft.Final, Rows: e.trace.rows, Notes: e.notes()}, nil
}

func (e *mrmTrace) notes() []string {
	notes := e.trace.notes()
	if e.about.Collector.InferredPhases {
		notes = append(notes,
			"nobody set a marker: its phases are inferred, weight_load ends when a mapped model file was read last")
	}
	if _, err := os.Stat(filepath.Join(e.dir, rundir.LivesName)); err != nil {
		notes = append(notes, "kv_block_lifecycle.parquet is empty: record with --tap-kv")
	}
	return notes
}

// write writes the files of the run.
func (e *mrmTrace) write(ctx context.Context) error {
	fill := map[string]func(io.Writer) error{
		mrmFiles[0]: func(w io.Writer) error {
			return e.writeTrace(ctx, w)
		}, mrmFiles[1]: e.writeRegions,
		mrmFiles[2]: func(w io.Writer) error { return e.writeLives(ctx, w) }, mrmFiles[3]: e.writeMetrics,
		mrmFiles[4]: func(w io.Writer) error { return writeJSON(w, e.about) }, mrmFiles[5]: e.writePrompts,
	}
	for _, name := range mrmFiles {
		if err := e.create(name, fill[name]); err != nil {
			return err
		}
	}
	return e.create(rundir.ManifestName, e.writeManifest)
}

func (e *mrmTrace) create(name string, fill func(io.Writer) error) error {
	file, err := e.draft.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(file), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// writeTrace writes the accesses, and measures them both ways.
func (e *mrmTrace) writeTrace(ctx context.Context, w io.Writer) error {
	t, err := table.Open(e.dir, rundir.TraceName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ledger := false
	if t != nil {
		_, ledger = t.Metadata(memtrace.LedgerKey)
		if err := t.Close(); err != nil {
			return err
		}
	}
	if e.trace, err = newMRMTracer(w, e.meta.RunID, ledger); err != nil {
		return err
	}
	if e.report, err = memory.Analyze(ctx, e.dir, memory.Options{Uses: true, Rows: e.trace.addRows}); err != nil {
		return err
	}
	if e.trace.rows == 0 {
		return fmt.Errorf("%w that mrm-trace can read: %s; record with --tap-ledger rows, or --tap-samples perf",
			memory.ErrNoTrace, strings.Join(e.trace.notes(), "; "))
	}
	return e.trace.close()
}

func (e *mrmTrace) writeRegions(w io.Writer) error {
	s := schemaOf(mrmRegionColumns)
	out, err := table.NewParquet(w, s)
	if err != nil {
		return err
	}
	b := table.NewBatch(s)
	for _, r := range e.trace.observed.Regions() {
		name, _ := typeOf(r.Type)
		b.Int(0, r.ID)
		b.Text(1, name)
		for i, v := range []int64{int64(r.PageMin), int64(r.PageMax), r.FirstNS, r.LastNS, r.Reads + r.Writes} {
			b.Int(2+i, v)
		}
		b.Int(7, int64(math.Float64bits(float64(r.RetentionNS())/1e9)))
		b.Int(8, int64(r.Pages()))
		if err := b.EndRow(); err != nil {
			return err
		}
	}
	return errors.Join(out.Write(b), out.Close())
}

// writeLives writes the lives of blocks that the run has recorded.
func (e *mrmTrace) writeLives(ctx context.Context, w io.Writer) error {
	s := schemaOf(mrmLifeColumns)
	out, err := table.NewParquet(w, s)
	if err != nil {
		return err
	}
	b := table.NewBatch(s)
	err = memory.EachLife(ctx, e.dir, func(l *memory.Life) error {
		b.Int(0, l.Block)
		if l.Addr != 0 {
			b.Int(1, int64(l.Addr))
			b.Int(2, int64(l.Addr/memtrace.PageBytes))
		}
		end := max(l.WriteNS, l.ReadNS)
		if l.EndNS != 0 {
			end = l.EndNS
		}
		for column, ns := range map[int]int64{3: l.WriteNS, 4: l.ReadNS, 5: l.EndNS} {
			if ns != 0 {
				b.Int(column, ns)
			}
		}
		b.Int(6, l.Reads)
		b.Int(7, max(end-l.WriteNS, 0))
		b.Int(8, l.Layer)
		b.Text(9, l.KV)
		if err := b.EndRow(); err != nil || b.Rows() < 1<<16 {
			return err
		}
		defer b.Reset()
		return out.Append(b)
	})
	if err != nil {
		return err
	}
	return errors.Join(out.Append(b), out.Close())
}

// mrmMetricColumns are mrm-trace's, by its definitions, and after them llamatap's, by bytes.
var mrmMetricColumns = []string{
	"region_type", "n_regions", "retention_p50_s", "retention_p90_s", "retention_p99_s", "retention_mean_s",
	"write_once_ratio_mean", "reads_per_write_mean",
	"working_set_mb_total", "unique_pages_total", "suitability",
	"llamatap_retention_p50_s", "llamatap_retention_p99_s", "llamatap_write_once_ratio", "llamatap_working_set_bytes",
}

func (e *mrmTrace) writeMetrics(w io.Writer) error {
	out := table.NewCSV(w, mrmMetricColumns...)
	types := e.trace.observed.Types()
	slices.SortFunc(types, func(a, b memtrace.ObservedType) int {
		x, _ := typeOf(a.Type)
		y, _ := typeOf(b.Type)
		return strings.Compare(x, y)
	})
	for i := range types {
		t := &types[i]
		name, _ := typeOf(t.Type)
		row := []any{
			name, t.Regions, t.RetentionP50, t.RetentionP90, t.RetentionP99, t.RetentionMean, t.WriteOnce,
			t.ReadsPerWrite, float64(t.Pages*memtrace.PageBytes) / (1 << 20), t.Pages,
			string(t.Label(memtrace.DefaultThresholds())), nil, nil, nil, nil,
		}
		if own := e.report.Type(name); own != nil {
			if r := own.Retention; r != nil {
				row[11], row[12] = r.P50, r.P99
			}
			row[13] = own.WriteOnce
			if n := len(own.WorkingSet); n > 0 {
				row[14] = own.WorkingSet[n-1].MeanBytes
			}
		}
		out.Row(row...)
	}
	return out.Close()
}

// mrmManifest is mrm-trace's manifest.json.
type mrmManifest struct {
	Version string            `json:"manifest_schema_version"`
	RunID   string            `json:"run_id"`
	Created string            `json:"created_at_utc"`
	Files   []mrmManifestFile `json:"files"`
}

type mrmManifestFile struct {
	Path    string `json:"path"`
	Size    int64  `json:"size_bytes"`
	SHA256  string `json:"sha256"`
	Version string `json:"schema_version,omitempty"`
}

func (e *mrmTrace) writeManifest(w io.Writer) error {
	m := mrmManifest{Version: schemaVersion, RunID: e.meta.RunID, Created: time.Now().UTC().Format(time.RFC3339)}
	for _, name := range slices.Sorted(slices.Values(mrmFiles)) {
		file, err := os.Open(e.draft.Path(name))
		if err != nil {
			return err
		}
		sum := sha256.New()
		n, err := io.Copy(sum, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		of := mrmManifestFile{Path: name, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}
		if name != "prompt_outputs.json" {
			of.Version = schemaVersion
		}
		m.Files = append(m.Files, of)
	}
	return writeJSON(w, m)
}

func writeJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// promptOutput is an entry of prompt_outputs.json.
type promptOutput struct {
	Index     int    `json:"index"`
	Prompt    string `json:"prompt"`
	Output    string `json:"output"`
	Prompted  int    `json:"prompt_tokens"`
	Generated int    `json:"tokens_generated"`
	// Duration is not known of each request.
	Duration *float64 `json:"duration_s"`
}

// maxPrompts bounds how many requests are distinguished.
const maxPrompts = 1 << 20

// writePrompts writes what requests were made of, as far as the run has its tokens.
func (e *mrmTrace) writePrompts(w io.Writer) error {
	type request struct {
		ctx          uint32
		seq, request int32
	}
	promptOutputs := []*promptOutput{}
	at := map[request]*promptOutput{}
	err := eachToken(e.dir, func(t *tensors.Token) error {
		key := request{ctx: t.Ctx, seq: -1, request: -1}
		if t.Seq != nil {
			key.seq = *t.Seq
		}
		if t.Request != nil {
			key.request = *t.Request
		}
		p := at[key]
		if p == nil {
			if len(promptOutputs) == maxPrompts {
				return nil
			}
			p = &promptOutput{Index: len(promptOutputs)}
			at[key], promptOutputs = p, append(promptOutputs, p)
		}
		if t.Phase == "decode" {
			p.Output, p.Generated = p.Output+t.Text, p.Generated+1
		} else {
			p.Prompt, p.Prompted = p.Prompt+t.Text, p.Prompted+1
		}
		return nil
	})
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]any{"prompts": promptOutputs})
}

func eachToken(dir string, f func(*tensors.Token) error) error {
	file, err := rundir.OpenFile(filepath.Join(dir, rundir.TokensName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = tensors.ReadTokens(file, f)
	return err
}
