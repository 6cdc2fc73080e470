package resources

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// ErrNoKV occurs when a run has no table of the KV cache that can be read.
var ErrNoKV = errors.New("no lives of the KV cache")

// KV is what the table of a run's KV cache says. Times are in seconds after the first thing that was seen,
// durations in seconds.
type KV struct {
	Path    string `json:"path"`
	Version string `json:"schema_version"`
	Rows    int64  `json:"rows"`
	Missing string `json:"missing,omitempty"` // that recording stopped before the program did
	// BeginUnixNS is the time that the others count from; 0 where no time is known.
	BeginUnixNS int64   `json:"begin_unix_ns"`
	Seconds     float64 `json:"seconds"` // to the last thing that was seen
	// Last is how the caches were used when the recording ended. Caches that were freed before are in Freed.
	Last      kvcache.Snapshot `json:"last"`
	Sequences []KVSequence     `json:"sequences"`
	Layers    []KVLayer        `json:"layers"`
	Timeline  []KVCache        `json:"timeline"`
}

// KVSequence is the lives of the blocks of one sequence in one cache. Each life is that of the cells that the
// sequence wrote into one block; it counts once, whatever the number of layers.
type KVSequence struct {
	Ctx      int64            `json:"ctx"`
	Cache    string           `json:"cache"`
	Seq      int64            `json:"seq_id"` // -1: not known
	Lives    int64            `json:"lives"`
	Cells    int64            `json:"cells"` // the most of each life, added up
	Ended    map[string]int64 `json:"ended"` // lives by why their last cell was evicted
	Censored int64            `json:"censored"`
	Found    int64            `json:"found,omitempty"` // lives that were loaded with a state
	Writes   int64            `json:"writes"`          // of cells, by one layer
	Reads    int64            `json:"reads"`
	// Lifetime is from the first cell to the last one's end, Idle the part of it since they were read or written
	// last. Of lives that ended.
	Lifetime Spread `json:"lifetime"`
	Idle     Spread `json:"idle"`
}

// Spread is how durations are spread, in seconds. The percentiles are left out above a million durations.
type Spread struct {
	Count int64    `json:"count"`
	Mean  *float64 `json:"mean,omitempty"`
	P50   *float64 `json:"p50,omitempty"`
	P90   *float64 `json:"p90,omitempty"`
	Max   *float64 `json:"max,omitempty"`

	sum, max float64
	all      []float64
}

// maxSpread bounds how many durations are kept for percentiles.
const maxSpread = 1 << 20

func (s *Spread) add(seconds float64) {
	s.Count++
	s.sum += seconds
	s.max = max(s.max, seconds)
	if s.Count <= maxSpread {
		s.all = append(s.all, seconds)
	}
}

func (s *Spread) settle() {
	if s.Count == 0 {
		return
	}
	s.Mean, s.Max = new(s.sum/float64(s.Count)), new(s.max)
	if s.Count <= maxSpread {
		slices.Sort(s.all)
		// The smallest value that at least this share of all are not above.
		at := func(percent int) *float64 { return new(s.all[(len(s.all)*percent+99)/100-1]) }
		s.P50, s.P90 = at(50), at(90)
	}
	s.all = nil
}

// KVLayer is what one tensor of one layer was written and read.
type KVLayer struct {
	Ctx          int64  `json:"ctx"`
	Cache        string `json:"cache"`
	Layer        int64  `json:"layer"`
	Tensor       string `json:"kv"`
	CellBytes    int64  `json:"cell_bytes"`
	Writes       int64  `json:"writes"` // of cells
	Reads        int64  `json:"reads"`
	BytesWritten int64  `json:"bytes_written"`
	BytesRead    int64  `json:"bytes_read"`
}

// KVCache is how full one cache was over time.
type KVCache struct {
	Ctx   int64  `json:"ctx"`
	Cache string `json:"cache"`
	Total int64  `json:"total_cells"` // 0 = not known
	Block int64  `json:"block_cells"`
	// in use, the mean of each of equal parts of the time; a block's cells count from its first to its last
	Cells []float64 `json:"cells"`
}

// OpenKV reads the table of a run directory, or a table itself. points is how many parts the timeline has. Memory
// is bounded by the sequences and layers, not by the rows. progress, where it is not nil, is called with the rows that
// were read, of all; each is read twice.
func OpenKV(ctx context.Context, path string, points int, progress func(done, total int64)) (*KV, error) {
	name := filepath.Join(path, rundir.LivesName)
	if strings.HasSuffix(path, ".parquet") {
		name = path
		// a link that the user names; those in a run directory are not followed
		if real, err := filepath.EvalSymlinks(path); err == nil {
			name = real
		}
	}
	f, err := rundir.OpenFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s: there is no such file or folder: give a run directory or a .parquet file", path)
		}
		if err := rundir.OfSegment(path); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoKV, err)
		}
		return nil, fmt.Errorf("%s: %w: record with --tap-kv; a live run has none yet, and one that was killed has "+
			"lost it", path, ErrNoKV)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := table.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: the file was not completed, or is not a table: %w", name, ErrNoKV, err)
	}
	k := &KV{Path: path, Rows: r.Rows()}
	if m, err := rundir.ReadMetadata(filepath.Dir(name)); err == nil {
		k.Missing = m.Stopped.Missing()
	}
	if err := k.about(r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	read := &kvReading{KV: k, r: r, points: max(points, 1), progress: progress}
	if err := read.readAll(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

// about reads what the file says of itself.
func (k *KV) about(r *table.Reader) error {
	k.Version = r.SchemaVersion()
	switch {
	case k.Version == "":
		return fmt.Errorf("%w: no %s: this is another table", ErrNoKV, table.VersionKey)
	case !table.ReadableVersion(k.Version):
		return fmt.Errorf("%w: schema version %s, known is %s: read it with a newer llamatap", ErrNoKV, k.Version,
			table.Version)
	}
	if text, ok := r.Metadata(kvcache.SnapshotKey); ok {
		if err := json.Unmarshal([]byte(text), &k.Last); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrNoKV, kvcache.SnapshotKey, err)
		}
	}
	return nil
}

// Gauges are the caches of the run, at its end or when they were freed, sorted.
func (k *KV) Gauges() []kvcache.Gauge {
	gauges := append(slices.Clone(k.Last.Freed), k.Last.Caches...)
	slices.SortStableFunc(gauges, func(a, b kvcache.Gauge) int {
		return cmp.Or(cmp.Compare(a.Ctx, b.Ctx), cmp.Compare(a.Cache, b.Cache))
	})
	return gauges
}
