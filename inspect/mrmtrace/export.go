package mrmtrace

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// Options say where an export goes.
type Options struct {
	Out   string // results folder, which may hold other runs
	Force bool   // replace the run, if it is there
}

// Result says what was written.
type Result struct {
	Path  string // of the run in the results folder
	Rows  int64  // of its trace
	Notes []string
}

// ErrExists occurs when the run is in the results folder already.
var ErrExists = errors.New("is there already")

// files are those of a run, in the order in which they are written.
var files = []string{rundir.TraceName, rundir.RegionsName, rundir.LivesName, "metrics.csv", rundir.MetadataName,
	"prompt_outputs.json"}

// exporter is one export under way.
type exporter struct {
	dir    string // of the run
	draft  string // folder that becomes the run's
	meta   rundir.Metadata
	trace  *tracer
	report *memory.Report
	about  metadata
}

// Export writes a run into a results folder of mrm-trace: MACHINE/MODEL/RUN with its tables, and a line of
// manifest.csv. Nothing is left of one that fails. A run without accesses is memory.ErrNoTrace.
func Export(ctx context.Context, dir string, o Options) (*Result, error) {
	e := &exporter{dir: dir}
	var err error
	if e.meta, err = rundir.ReadMetadata(dir); err != nil {
		return nil, fmt.Errorf("%w: give a run directory", err)
	}
	e.about = e.describe()
	final := filepath.Join(o.Out, e.about.Machine, slug(e.about.Model.ID), e.meta.RunID)
	if _, err := os.Lstat(final); err == nil && !o.Force {
		return nil, fmt.Errorf("%s %w: choose another folder with -o, or --force to replace it", final, ErrExists)
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o700); err != nil {
		return nil, err
	}
	if e.draft, err = os.MkdirTemp(filepath.Dir(final), "."+e.meta.RunID+".part-*"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(e.draft)
	if err := e.write(ctx); err != nil {
		return nil, err
	}
	if o.Force {
		if err := os.RemoveAll(final); err != nil {
			return nil, err
		}
	}
	if err := os.Rename(e.draft, final); err != nil {
		return nil, err
	}
	if err := e.list(filepath.Join(o.Out, "manifest.csv")); err != nil {
		return nil, err
	}
	return &Result{Path: final, Rows: e.trace.rows, Notes: e.notes()}, nil
}

func (e *exporter) notes() []string {
	notes := e.trace.notes()
	if e.about.Collector.InferredPhases {
		notes = append(notes, "nobody set a marker: its phases are inferred, weight_load ends when a mapped model file was read last")
	}
	if _, err := os.Stat(filepath.Join(e.dir, rundir.LivesName)); err != nil {
		notes = append(notes, "kv_block_lifecycle.parquet is empty: record with --tap-kv")
	}
	return notes
}

// write writes the files of the run.
func (e *exporter) write(ctx context.Context) error {
	fill := map[string]func(io.Writer) error{
		files[0]: func(w io.Writer) error {
			return e.writeTrace(ctx, w)
		}, files[1]: e.writeRegions, files[2]: e.writeLives, files[3]: e.writeMetrics,
		files[4]: func(w io.Writer) error { return writeJSON(w, e.about) }, files[5]: e.writePrompts,
	}
	for _, name := range files {
		if err := e.create(name, fill[name]); err != nil {
			return err
		}
	}
	return e.create(rundir.ManifestName, e.writeManifest)
}

func (e *exporter) create(name string, fill func(io.Writer) error) error {
	file, err := os.OpenFile(filepath.Join(e.draft, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = fill(file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// writeTrace writes the accesses, and measures them both ways.
func (e *exporter) writeTrace(ctx context.Context, w io.Writer) error {
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
	if e.trace, err = newTracer(w, e.meta.RunID, ledger); err != nil {
		return err
	}
	if e.report, err = memory.Analyze(ctx, e.dir, memory.Options{Uses: true, Rows: e.trace.take}); err != nil {
		return err
	}
	if e.trace.rows == 0 {
		return fmt.Errorf("%w that mrm-trace can read: %s; record with --tap-ledger rows, or --tap-samples perf",
			memory.ErrNoTrace, strings.Join(e.trace.notes(), "; "))
	}
	return e.trace.close()
}

func (e *exporter) writeRegions(w io.Writer) error {
	s := schemaOf(regionColumns)
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
		b.Float(7, float64(r.RetentionNS())/1e9)
		b.Int(8, int64(r.Pages()))
		if err := b.EndRow(); err != nil {
			return err
		}
	}
	return errors.Join(out.Write(b), out.Close())
}

// writeLives writes the lives of blocks that the run has recorded.
func (e *exporter) writeLives(w io.Writer) error {
	s := schemaOf(lifeColumns)
	out, err := table.NewParquet(w, s)
	if err != nil {
		return err
	}
	b := table.NewBatch(s)
	err = memory.EachLife(e.dir, func(l *memory.Life) error {
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

// metricColumns are mrm-trace's, by its definitions, and after them llamatap's, by bytes.
var metricColumns = []string{
	"region_type", "n_regions", "retention_p50_s", "retention_p90_s", "retention_p99_s", "retention_mean_s",
	"write_once_ratio_mean", "reads_per_write_mean",
	"working_set_mb_total", "unique_pages_total", "suitability",
	"llamatap_retention_p50_s", "llamatap_retention_p99_s", "llamatap_write_once_ratio", "llamatap_working_set_bytes",
}

func (e *exporter) writeMetrics(w io.Writer) error {
	out := csv.NewWriter(w)
	out.Write(metricColumns)
	types := e.trace.observed.Types()
	slices.SortFunc(types, func(a, b memtrace.ObservedType) int {
		x, _ := typeOf(a.Type)
		y, _ := typeOf(b.Type)
		return strings.Compare(x, y)
	})
	for i := range types {
		t := &types[i]
		name, _ := typeOf(t.Type)
		row := []string{
			name, strconv.Itoa(t.Regions), number(t.RetentionP50), number(t.RetentionP90), number(t.RetentionP99),
			number(t.RetentionMean), number(t.WriteOnce),
			number(t.ReadsPerWrite), number(float64(t.Pages*memtrace.PageBytes) / (1 << 20)),
			strconv.FormatInt(t.Pages, 10),
			string(t.Label(memtrace.DefaultThresholds())), "", "", "", "",
		}
		if own := e.report.Type(name); own != nil {
			if r := own.Retention; r != nil {
				row[11], row[12] = number(r.P50), number(r.P99)
			}
			if own.WriteOnce != nil {
				row[13] = number(*own.WriteOnce)
			}
			if n := len(own.WorkingSet); n > 0 {
				row[14] = number(own.WorkingSet[n-1].MeanBytes)
			}
		}
		out.Write(row)
	}
	out.Flush()
	return out.Error()
}

// number writes a number; NaN and infinities are empty.
func number(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// manifest is mrm-trace's manifest.json.
type manifest struct {
	Version string         `json:"manifest_schema_version"`
	RunID   string         `json:"run_id"`
	Created string         `json:"created_at_utc"`
	Files   []manifestFile `json:"files"`
}

type manifestFile struct {
	Path    string `json:"path"`
	Size    int64  `json:"size_bytes"`
	SHA256  string `json:"sha256"`
	Version string `json:"schema_version,omitempty"`
}

func (e *exporter) writeManifest(w io.Writer) error {
	m := manifest{Version: schemaVersion, RunID: e.meta.RunID, Created: time.Now().UTC().Format(time.RFC3339)}
	for _, name := range slices.Sorted(slices.Values(files)) {
		file, err := os.Open(filepath.Join(e.draft, name))
		if err != nil {
			return err
		}
		sum := sha256.New()
		n, err := io.Copy(sum, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		of := manifestFile{Path: name, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}
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
func (e *exporter) writePrompts(w io.Writer) error {
	type request struct {
		ctx          uint32
		seq, request int32
	}
	all := []*promptOutput{}
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
			if len(all) == maxPrompts {
				return nil
			}
			p = &promptOutput{Index: len(all)}
			at[key], all = p, append(all, p)
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
	return writeJSON(w, map[string]any{"prompts": all})
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

func sortedKeys(keys iter.Seq[string]) []string { return slices.Sorted(keys) }
