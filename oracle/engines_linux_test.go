package oracle

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// thousandRuns writes a thousand sealed runs of 40 cells, and ten contaminated ones, and aggregates them. It returns
// the folder that has them as results, and the aggregate as aggregate.
func thousandRuns(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	results := filepath.Join(dir, "results")
	random := rand.New(rand.NewPCG(5, 6))
	for i := range 1000 {
		randomRun(random, i%40, i/40, memory.Clean).Write(t, results)
	}
	for i := range 10 {
		randomRun(random, i, 25, memory.Contaminated).Write(t, filepath.Join(results, "contaminated"))
	}
	llamatap(t, "mrm", "aggregate", results, "--out", filepath.Join(dir, "aggregate"), "--no-figures").good(t)
	return dir
}

// randomRun is a repetition of a cell: what it holds, how long that was needed and how fast it was differ. Values of
// the cell need escapes in the name of a folder, and one of them is absent.
func randomRun(random *rand.Rand, cell, repetition int, class memory.Class) *memrun.Run {
	const second = int64(1e9)
	start := 1_700_000_000*second + random.Int64N(second)
	model := []string{"alpha", "beta 7b+q=4%"}[cell%2]
	if class == memory.Clean && random.IntN(10) == 0 {
		class = memory.Marginal
	}
	m := memory.Metadata{
		SchemaVersion: table.Version,
		Metadata: rundir.Metadata{Version: 1, RunID: fmt.Sprintf("run-%d-%d", cell, repetition),
			Model: rundir.Model{ID: model}, Tokens: &rundir.Tokens{Prompt: 3, Generated: 7}},
		Experiment: memory.Experiment{Name: "sweep", Seed: 1, Repetitions: 25},
		Cell: memory.Cell{Key: fmt.Sprintf("key-%d", cell), ModelID: model, Prompt: "p0", NCtx: 256 * (cell / 2 % 5),
			KVType: []string{"f16", "q8_0/f16", "", "q4_0"}[cell/10], Repetition: repetition, MaxTokens: 7,
			Concurrency: 1 + cell%3},
		Observer: memory.Observer{
			Tapped: memory.Pass{GeneratedTokens: 7, GenerationNS: second + random.Int64N(second)}},
		Validity: memory.Validity{Class: class},
	}
	if ratio := 0.9 + random.Float64()/10; random.IntN(5) > 0 {
		m.Observer.DecodeRatio = &ratio
	}
	read := start + 5*second + random.Int64N(10*second)
	r := &memrun.Run{Model: "m" + strconv.Itoa(cell), Metadata: &m, Regions: []memrun.Region{
		{ID: 0, Type: "weight", Name: "w", Layer: 0, Buffer: 1, Bytes: 4000 + random.Int64N(1e6), FirstRead: start,
			LastRead: read, Reads: 1 + random.Int64N(100), Read: 40000, Alloc: start},
		{ID: 1, Type: "kv_cache", Name: "cache_k_l0", KV: "k", Layer: 0, Buffer: 2, Bytes: 700, FirstWrite: start,
			LastWrite: start, FirstRead: start, LastRead: read, Writes: 7, Reads: 10, Written: 700, Read: 1000}}}
	for block := range int64(7) {
		least := second << block / 8 // durations so far apart that memtrace.Distribution keeps each
		life := memrun.Life{Block: block, KV: "k", CellBytes: 100, Cells: 1, Alloc: start, Write: start,
			Read: start + least + random.Int64N(least/2), Writes: 1 + random.Int64N(2), Reads: 2}
		if random.IntN(3) > 0 {
			life.Reason, life.Evict = "clear", read
		}
		r.Lives = append(r.Lives, life)
	}
	return r
}

// engineRow is a row of the aggregate as another engine computes it. What it has none of is nil.
type engineRow struct {
	Experiment  string   `json:"experiment"`
	Cell        string   `json:"cell"`
	ModelID     string   `json:"model_id"`
	Prompt      string   `json:"prompt"`
	NCtx        int      `json:"n_ctx"`
	KVType      *string  `json:"kv_type"`
	MaxTokens   int      `json:"max_tokens"`
	Concurrency int      `json:"concurrency"`
	RegionType  string   `json:"region_type"`
	Metric      string   `json:"metric"`
	N           int      `json:"n"`
	Marginal    int      `json:"marginal"`
	Mean        *float64 `json:"mean"`
	SD          *float64 `json:"sd"`
	Low         *float64 `json:"ci95_low"`
	High        *float64 `json:"ci95_high"`
	Min         *float64 `json:"min"`
	Max         *float64 `json:"max"`
	Method      string   `json:"method"`
}

// engineAnswer is answer.json, which a script of testdata writes: the aggregate from run_values, and the rows of the
// retention of caches from the tables of the runs.
type engineAnswer struct {
	Values  []engineRow `json:"values"`
	InPlace []engineRow `json:"in_place"`
	Workers int         `json:"workers"` // that computed a part; DuckDB has none
}

// askEngine runs a script of testdata in a folder of thousandRuns, by a program with arguments, and compares each
// figure with the aggregate.
func askEngine(t *testing.T, dir, script string, program ...string) engineAnswer {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", script))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program[0], append(program[1:], path)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	var answer engineAnswer
	if err := json.Unmarshal(content(t, filepath.Join(dir, "answer.json")), &answer); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(content(t, filepath.Join(dir, "aggregate", "aggregate.csv")))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	wants, retentions, shares := map[string]map[string]string{}, 0, 0
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		wants[strings.Join(line[:10], "|")] = row
		if row["region_type"] == "kv_cache" && strings.HasPrefix(row["metric"], "retention_") {
			retentions++
		}
		if row["method"] == "wilson" && row["min"] != row["max"] {
			shares++
		}
	}
	if len(answer.Values) != len(wants) || len(wants) < 40*20 || len(answer.InPlace) != retentions ||
		retentions != 40*4 || shares < 40 {
		t.Errorf("%d rows of %d, %d of %d in place, %d labels of a part of the runs", len(answer.Values), len(wants),
			len(answer.InPlace), retentions, shares)
	}
	worst, where := 0.0, ""
	for _, row := range append(answer.Values, answer.InPlace...) {
		key := row.key()
		if differs := row.differs(t, key, wants[key]); differs > worst {
			worst, where = differs, key
		}
	}
	t.Logf("%s: %d rows; the largest relative difference is %.3g, of %s", script,
		len(answer.Values)+len(answer.InPlace), worst, where)
	return answer
}

// key is the first columns of the aggregate.
func (r *engineRow) key() string {
	kv := ""
	if r.KVType != nil {
		kv = *r.KVType
	}
	return strings.Join([]string{r.Experiment, r.Cell, r.ModelID, r.Prompt, strconv.Itoa(r.NCtx), kv,
		strconv.Itoa(r.MaxTokens), strconv.Itoa(r.Concurrency), r.RegionType, r.Metric}, "|")
}

// differs compares a row with that of the aggregate, and returns the largest difference of a figure, as a share of
// the largest figure of the row.
func (r *engineRow) differs(t *testing.T, key string, want map[string]string) (worst float64) {
	t.Helper()
	if want == nil || strconv.Itoa(r.N) != want["n"] || strconv.Itoa(r.Marginal) != want["marginal"] ||
		r.Method != want["method"] {
		t.Errorf("%s: %+v, want %v", key, r, want)
		return 0
	}
	for name, got := range map[string]*float64{"mean": r.Mean, "sd": r.SD, "ci95_low": r.Low, "ci95_high": r.High,
		"min": r.Min, "max": r.Max} {
		figure, err := strconv.ParseFloat(want[name], 64)
		if got == nil || err != nil {
			if got != nil || want[name] != "" {
				t.Errorf("%s: %s is %v, want %q", key, name, got, want[name])
			}
			continue
		}
		// The ends of an interval are differences: their rounding is of the figures that they are computed from.
		off := math.Abs(*got - figure)
		if off > 0 {
			off /= max(math.Abs(figure), math.Abs(*r.Mean))
		}
		if worst = max(worst, off); off > 1e-12 || math.IsNaN(off) {
			t.Errorf("%s: %s is %v, want %v", key, name, *got, figure)
		}
	}
	return worst
}

// TestPySpark: a standalone cluster of Spark with two workers reads the figures of a thousand runs, and the lives of
// their caches, in place, and computes what mrm aggregate does.
func TestPySpark(t *testing.T) {
	testenv.Slow(t)
	python := testenv.NeedPython(t, "pyspark", "scipy")
	testenv.NeedJava(t)
	dir := thousandRuns(t)
	home, err := exec.Command(python, "-c", "import os, pyspark; print(os.path.dirname(pyspark.__file__))").Output()
	if err != nil {
		t.Fatal(err)
	}
	class := filepath.Join(strings.TrimSpace(string(home)), "bin", "spark-class")
	logs := t.TempDir()
	t.Setenv("SPARK_LOCAL_IP", "127.0.0.1")                            // that all listen on
	t.Setenv("SPARK_MASTER_OPTS", "-Dspark.master.rest.enabled=false") // on a fixed port
	t.Setenv("SPARK_HOME", filepath.Dir(filepath.Dir(class)))
	t.Setenv("PYSPARK_PYTHON", python)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	daemon(t, logs, class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port,
		"--webui-port", "0")
	testenv.Until(t, "the master listens", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	master := "spark://127.0.0.1:" + port
	for _, name := range []string{"worker1", "worker2"} {
		work := filepath.Join(logs, name)
		if err := os.Mkdir(work, 0o700); err != nil {
			t.Fatal(err)
		}
		daemon(t, work, class, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0",
			"--cores", "1", "--memory", "1g", "--work-dir", work, master)
	}
	t.Setenv("SPARK_MASTER", master)
	if n := askEngine(t, dir, "engine_spark.py", python).Workers; n != 2 {
		t.Errorf("%d workers had tasks", n)
	}
}

// TestRay: Ray Data with two workers, and DuckDB, read the figures of a thousand runs, and the lives of their caches,
// in place, and compute what mrm aggregate does. Ray listens on every address of its host, whatever it is asked for,
// so that it has a network of its own.
func TestRay(t *testing.T) {
	testenv.Slow(t)
	python := testenv.NeedPython(t, "ray.data", "duckdb", "scipy", "pandas")
	folder, err := os.MkdirTemp("", "ray") // with sockets, whose paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	host := testenv.NeedOtherHosts(t, 1)[0]
	dir := thousandRuns(t)
	t.Setenv("RAY_FOLDER", folder)
	t.Setenv("RAY_USAGE_STATS_ENABLED", "0")
	t.Setenv("HOME", folder) // for Ray's token
	askEngine(t, dir, "engine_duckdb.py", python)
	if n := askEngine(t, dir, "engine_ray.py", "ip", "netns", "exec", host.Name, python).Workers; n < 2 {
		t.Errorf("%d workers had tasks", n)
	}
}
