//go:build linux

package oracle

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// oneDefinition: what two tables of an analysis both name is one figure. After a single graph some activations were
// written once, and some more often, so that their share by bytes is not the share by regions.
func oneDefinition(t *testing.T, _ *prepared) {
	run := llamatap(t, "run", "-p", "Hello", "-n", "1", "--temp", "0", "-t", "1", "--ignore-eos", "--no-warmup",
		"--tap-ledger").good(t)
	llamatap(t, "mrm", "analyze", run.dirs[0]).good(t)
	tables := [2]map[string]map[string]string{}
	for i, name := range []string{"metrics.csv", "suitability.csv"} {
		file, err := os.Open(filepath.Join(run.dirs[0], "derived", "mrm", name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		rows, err := csv.NewReader(file).ReadAll()
		if err != nil || len(rows) < 2 {
			t.Fatalf("%s: %d rows, %v", name, len(rows), err)
		}
		tables[i] = map[string]map[string]string{}
		for _, row := range rows[1:] {
			tables[i][row[0]] = map[string]string{}
			for column, value := range row {
				tables[i][row[0]][rows[0][column]] = value
			}
		}
	}
	compared := 0
	for kind, row := range tables[0] {
		for column, value := range row {
			if other, both := tables[1][kind][column]; both {
				if compared++; other != value {
					t.Errorf("%s of %s is %s in metrics.csv and %s in suitability.csv", column, kind, value, other)
				}
			}
		}
	}
	if compared < 3*4 {
		t.Errorf("%d figures were compared of %v and %v", compared, tables[0], tables[1])
	}
	if once := tables[0]["activation"]["write_once_ratio"]; once == "0" || once == "1" {
		t.Errorf("write_once_ratio of activations is %s: that equals under each definition", once)
	}
}

func smallFigures(t *testing.T, p *prepared) {
	dir := p.copy(t, p.kv, "figures")
	svgs := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "derived", "mrm", "*.svg"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	llamatap(t, "mrm", "analyze", "--figures", "svg", dir).good(t)
	if len(svgs()) < 5 {
		t.Fatalf("figures %q", svgs())
	}
	for _, name := range svgs() {
		if size := len(content(t, name)); size > 200<<10 {
			t.Errorf("%s has %d bytes: it holds a font", filepath.Base(name), size)
		}
	}
	if o := llamatap(t, "mrm", "analyze", "--figures", "pdf", dir); o.status != 0 {
		t.Errorf("PDF: status %d, %s", o.status, o.stderr)
	}
}

// noSuchProcess: a command that does not refuse the process records until it is killed.
func noSuchProcess(t *testing.T, _ *prepared) {
	testenv.NeedBPF(t)
	term := testenv.OnTerminal(t, command(t, "host", "block", "--pid", "4194304")) // more than any id
	if !term.EndsWithin(testenv.Patience()) {
		t.Fatalf("it runs on, and prints %q", term.Screen())
	}
	if term.Wait(); !strings.Contains(term.Screen(), "no such process") {
		t.Errorf("it prints %q", term.Screen())
	}
}

// plantFIFO copies a run with a FIFO for its metadata.
func plantFIFO(t *testing.T, p *prepared, o outcome, name string) (dir, fifo string) {
	t.Helper()
	dir = p.copy(t, o, name)
	fifo = filepath.Join(dir, rundir.MetadataName)
	if err := errors.Join(os.Remove(fifo), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir, fifo
}

// endsOrOpens waits until ended holds an error, or somebody opens the FIFO, who waits for its writer, for ever. The
// writer that it returns is closed by the test's end.
func endsOrOpens(t *testing.T, what, fifo string, ended <-chan error) (err error, isOpened bool) {
	t.Helper()
	testenv.Until(t, what+" ends or opens the FIFO", func() bool {
		select {
		case err = <-ended:
			return true
		default:
		}
		writer, failed := unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if failed != nil { // nobody reads
			return false
		}
		t.Cleanup(func() { unix.Close(writer) })
		t.Errorf("%s opens the FIFO, and would wait", what)
		isOpened = true
		return true
	})
	return err, isOpened
}

func refusesFIFO(t *testing.T, p *prepared) {
	dir, fifo := plantFIFO(t, p, p.tensor, "fifo")
	for _, name := range []string{"verify", "inspect"} {
		cmd := command(t, name, dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		err, isOpened := endsOrOpens(t, name, fifo, ended)
		var exit *exec.ExitError
		if isOpened {
			cmd.Process.Kill()
			<-ended
		} else if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// showsProgress holds up each command for a second in the middle of its work, which is more than the moment that
// passes before a bar is drawn.
func showsProgress(t *testing.T, p *prepared) {
	strace, dir, kv := testenv.NeedStrace(t), p.copy(t, p.tensor, "slow"), p.copy(t, p.kv, "slowkv")
	terms := map[string]*testenv.Terminal{}
	for bar, c := range map[string]struct {
		held string   // the file
		call string   // the system call that is held up, and which of its calls
		args []string // of llamatap
	}{
		"verifying": {filepath.Join(dir, rundir.StreamName), "pread64:40", []string{"verify", dir}},
		"comparing": {filepath.Join(dir, rundir.StreamName), "pread64:40", []string{"diff", dir, dir}},
		"exporting": {filepath.Join(dir, rundir.StreamName), "pread64:40",
			[]string{"export", "--to", "strap", "--phase", "decode", "-o", filepath.Join(p.dir, "slow.stream"), dir}},
		"reading":    {filepath.Join(kv, rundir.LivesName), "pread64:2", []string{"kv", kv}},
		"analysing":  {filepath.Join(kv, rundir.TraceName), "pread64:2", []string{"memory", kv}},
		"summing up": {filepath.Join(kv, rundir.EventsName), "read:1", []string{"resource", "summary", kv}},
	} {
		call, when, _ := strings.Cut(c.call, ":")
		hold := []string{"-f", "-o", os.DevNull, "-P", c.held, "-e", "trace=" + call,
			"-e", "inject=" + call + ":delay_enter=1000000:when=" + when, testenv.NeedBinary(t)}
		terms[bar] = testenv.OnTerminal(t, exec.Command(strace, append(hold, c.args...)...))
	}
	for bar, term := range terms {
		status, drawn := term.Wait().ExitStatus(), regexp.MustCompile(bar+` +[0-9]+%`)
		if status != 0 || !drawn.MatchString(term.Screen()) {
			t.Errorf("%s: status %d, no bar in %q", bar, status, term.Screen())
		}
	}
}

// oneSpelling: commands that print reports have the same flags for their form.
func oneSpelling(t *testing.T, p *prepared) {
	for i, args := range [][]string{
		{"kv", p.kv.dirs[0]}, {"memory", p.kv.dirs[0]}, {"resource", "summary", p.kv.dirs[0]},
		{"cat", p.tensor.dirs[0], "--tensor", "l_out-0"},
	} {
		name := filepath.Join(p.dir, fmt.Sprintf("report%d", i))
		long := llamatap(t, append(slices.Clip(args), "--format", "json", "-o", name)...)
		short := llamatap(t, append(slices.Clip(args), "--json")...)
		written, _ := os.ReadFile(name)
		if long.status != 0 || short.status != 0 || short.stdout != string(written) || !json.Valid(written) {
			t.Errorf("%q: status %d and %d, %d and %d bytes\n%s%s",
				args, long.status, short.status, len(written), len(short.stdout), long.stderr, short.stderr)
		}
	}
}

// liveRun looks at a run whose collector is stopped, so that it is recorded for as long as that takes.
func liveRun(t *testing.T, _ *prepared) {
	l := alive(t, "--tap-granularity", "full_tensor")
	dir := runDirs(t, l.out)[0]
	testenv.Until(t, "some tensors are recorded", func() bool {
		info, err := os.Stat(filepath.Join(dir, "activations.stream.idx"))
		return err == nil && info.Size() > 64<<10
	})
	if err := l.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	o := llamatap(t, "inspect", dir)
	if o.status != 0 || strings.Contains(o.stdout, "DAMAGE") || !strings.Contains(o.stdout, "still running") ||
		!strings.Contains(o.stdout, "attention") {
		t.Errorf("status %d: %s%.600s", o.status, o.stderr, o.stdout)
	}
}

// removesLeft: a kill leaves files under the names that they have until they are whole.
func removesLeft(t *testing.T, p *prepared) {
	dir := p.copy(t, p.tensor, "left")
	left := []string{".activations.stream.ckpt.json-55", ".reserve-17", ".tokens-3", "control.sock"}
	for _, name := range left {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, rundir.ManifestName)); err != nil {
		t.Fatal(err)
	}
	llamatap(t, "verify", "--repair", dir).good(t)
	for _, name := range left {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

// emptySegment: a kill right after a segment began leaves its stream empty and without an index. The others count.
func emptySegment(t *testing.T, _ *prepared) {
	dir := llamatap(t, "run", "-p", "Hello", "-n", "40", "--temp", "0", "-t", "1", "--ignore-eos",
		"--tap-tensors", "l_out", "--tap-segment", "64K").good(t).dirs[0]
	segments, err := filepath.Glob(filepath.Join(dir, "seg-*"))
	if err != nil || len(segments) < 2 {
		t.Fatalf("segments %q, %v", segments, err)
	}
	last := segments[len(segments)-1]
	err = errors.Join(os.Remove(filepath.Join(dir, rundir.ManifestName)), os.RemoveAll(last), os.Mkdir(last, 0o700),
		os.WriteFile(filepath.Join(last, "activations.stream"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if o := llamatap(t, "inspect", dir); o.status != 0 || !strings.Contains(o.stdout, "NOT SEALED") {
		t.Errorf("status %d: %s%.300s", o.status, o.stderr, o.stdout)
	}
}

func ownCache(t *testing.T, p *prepared) {
	name := filepath.Join(p.dir, "prompt.cache")
	llamatap(t, "run", "-p", "Hello", "-n", "2", "--prompt-cache", name).good(t)
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// drawsLevels: a snapshot stands for its interval, so that the only one of a recording is a line through the chart.
func drawsLevels(t *testing.T, p *prepared) {
	snapshot := p.write(t, "tracepoints.jsonl", `{"timestamp":10,"interval_s":5,"inflight":[],"latency_histogram":[`+
		`{"device_id":8388608,"device_name":"sda","total":3,"buckets":[`+
		`{"slot":7,"count":3,"bucket_low":128,"bucket_high":255}]}]}`+"\n")
	charts := filepath.Join(p.dir, "charts")
	llamatap(t, "host", "analyze", snapshot, "--chart-types", "requests", "--charts-dir", charts).good(t)
	names, err := filepath.Glob(filepath.Join(charts, "*.png"))
	if err != nil || len(names) != 1 {
		t.Fatalf("charts %q, %v", names, err)
	}
	chart, err := png.Decode(bytes.NewReader(content(t, names[0])))
	if err != nil {
		t.Fatal(err)
	}
	size, coloured := chart.Bounds().Size(), 0
	for x := range size.X {
		for y := range size.Y {
			if r, g, b, _ := chart.At(x, y).RGBA(); max(r, g, b)-min(r, g, b) > 0x4000 { // neither frame nor text
				coloured++
				break
			}
		}
	}
	if coloured < size.X/2 {
		t.Errorf("%d of %d columns show something", coloured, size.X)
	}
}

// typedTables reads tables as pandas users do: a time that may be missing is no float, and one name stands for one
// thing.
func typedTables(t *testing.T, p *prepared) {
	script := `
import json, sys, pyarrow.parquet as parquet
dir = sys.argv[1]
lives = parquet.read_table(dir + "/kv_block_lifecycle.parquet")
print(json.dumps({
    "evict": str(lives.schema.field("evict_ns").type),
    "nulls": lives.column("evict_ns").null_count,
    "pandas": str(lives.to_pandas()["evict_ns"].dtype),
    "trace": parquet.read_schema(dir + "/trace.parquet").names,
    "token": sorted(json.load(open(dir + "/activations_tokens.json"))["tokens"][0]),
}))
`
	var got struct {
		Evict, Pandas string
		Nulls         int
		Trace, Token  []string
	}
	python := testenv.NeedPython(t, "pyarrow.parquet", "pandas", "duckdb")
	out, err := exec.Command(python, "-c", script, p.kv.dirs[0]).Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.HasPrefix(got.Evict, "timestamp[ns") || !strings.HasPrefix(got.Pandas, "datetime64[ns") ||
		got.Nulls == 0 {
		t.Errorf("evict_ns is %s, with %d nulls, and %s in pandas", got.Evict, got.Nulls, got.Pandas)
	}
	names := func(all []string) string { return " " + strings.Join(all, " ") + " " }
	if trace := names(got.Trace); !strings.Contains(trace, " step ") || !strings.Contains(trace, " seq_id ") {
		t.Errorf("trace.parquet has%s", trace)
	}
	if token := names(got.Token); !strings.Contains(token, " seq_id ") || strings.Contains(token, " seq ") {
		t.Errorf("a token has%s", token)
	}
}
