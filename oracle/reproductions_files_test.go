//go:build linux

package oracle

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// oneDefinition: what two tables of an analysis both name is one figure.
func oneDefinition(t *testing.T, _ *prepared) {
	run := llamatap(t, "run", "-p", "Hello", "-n", "40", "--temp", "0", "-t", "1", "--ignore-eos", "--tap-ledger").good(t)
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

// needsToken asks a server what a stranger on the machine would.
func needsToken(t *testing.T, p *prepared) {
	for _, flag := range []string{"--listen", "--addr"} { // as it was called once
		cmd := command(t, "serve", flag, "127.0.0.1:0", p.tensor.out())
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
		log, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(log).ReadString('\n')
		url := regexp.MustCompile(`http://[0-9.:]+`).FindString(line)
		if url == "" {
			cmd.Process.Kill()
			cmd.Wait()
			continue
		}
		for _, path := range []string{"/api/v1/runs", "/resource-logs"} {
			answer, err := http.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Body.Close(); answer.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s is answered with %s", path, answer.Status)
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		return
	}
	t.Fatal("the server does not start")
}

// refusesFIFO: who opens a FIFO waits for its writer, for ever.
func refusesFIFO(t *testing.T, p *prepared) {
	dir := p.copy(t, p.tensor, "fifo")
	fifo := filepath.Join(dir, rundir.MetadataName)
	if err := os.Remove(fifo); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"verify", "inspect"} {
		cmd := command(t, name, dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		testenv.Until(t, name+" ends or opens the FIFO", func() bool {
			select {
			case err := <-ended:
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != 1 {
					t.Errorf("%s: %v", name, err)
				}
				return true
			default:
			}
			writer, err := unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil { // nobody reads
				return false
			}
			t.Errorf("%s opens it, and would wait", name)
			cmd.Process.Kill()
			<-ended
			unix.Close(writer)
			return true
		})
	}
}

// showsProgress lets verify hash a file of 1 GiB without a block, which takes longer than a moment on any machine.
func showsProgress(t *testing.T, p *prepared) {
	dir := p.copy(t, p.tensor, "large")
	const size = 1 << 30
	if err := os.WriteFile(filepath.Join(dir, "large.bin"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "large.bin"), size); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, rundir.ManifestName)
	var manifest map[string]any
	if err := json.Unmarshal(content(t, name), &manifest); err != nil {
		t.Fatal(err)
	}
	manifest["version"] = 1 // which has no checksum of its own
	delete(manifest, "sha256")
	files, _ := manifest["files"].([]any)
	manifest["files"] = append(files, map[string]any{"name": "large.bin", "size": size, "sha256": strings.Repeat("0", 64)})
	text, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	term := testenv.OnTerminal(t, command(t, "verify", dir))
	term.Wait()
	if screen := term.Screen(); !strings.Contains(screen, "%") || !strings.Contains(screen, "large.bin") {
		t.Errorf("no bar, or no finding, in %q", screen)
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
	if !strings.HasPrefix(got.Evict, "timestamp[ns") || !strings.HasPrefix(got.Pandas, "datetime64[ns") || got.Nulls == 0 {
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
