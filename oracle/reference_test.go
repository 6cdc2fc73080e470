//go:build linux

package oracle

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
)

// A reference is a small recording whose normalised content is committed as digests.
type reference struct {
	name string
	args []string
	// sampled recordings hold what the kernel sampled: of their tables, only the schemas are compared.
	sampled bool
	// killed recordings are killed at this token and resumed.
	killed int64
}

// references are recordings with every recorder, of four architectures, resumed, in segments, and with codec q.
// A bias makes each generated token the same one: a choice between near values would depend on the processor, as what
// is repacked does.
func references(t *testing.T) []reference {
	t.Helper()
	greedy := []string{"-p", "func main() {", "--temp", "0", "-t", "1", "--ignore-eos", "-l", "262+1000", "-c", "512",
		"--no-repack"}
	run := func(tokens string, args ...string) []string {
		return slices.Concat([]string{"run", "-n", tokens}, greedy, args)
	}
	// Every expert is used, so that no choice between them depends on the processor either.
	model := func(arch string) string {
		return synthetic(t, arch, gguf.F16, func(c *synth.Config) { c.ExpertsUsed = c.Experts })
	}
	all := []string{"--tap-tensors", "*", "--tap-kv", "--tap-ledger", "--tap-resource-level", "DETAILED"}
	return []reference{
		{name: "tensors", args: run("4", "--tap-tensors", "*", "--tap-attention=exact")},
		{name: "codec-q", args: run("4", "--tap-tensors", "l_out", "--tap-codec", "q")},
		{name: "events", args: run("6", "--tap-resource-level", "VERBOSE")},
		{name: "ledger", args: run("6", "--tap-ledger", "--tap-kv")},
		{name: "windows", args: run("6", "--tap-ledger=windows", "--tap-ledger-window", "1h")},
		{name: "shift", args: run("120", "-c", "64", "--context-shift", "--tap-kv", "--tap-kv-block", "1",
			"--tap-regions", "--tap-resource-level", "MINIMAL")},
		{name: "qwen3moe", args: slices.Concat([]string{"exec"}, all,
			[]string{"--", "llama-completion", "-m", model("qwen3moe"), "-no-cnv", "-n", "4"}, greedy)},
		{name: "jamba", args: run("4", append(all, "-m", model("jamba"))...)},
		{name: "bert", args: slices.Concat([]string{"run"}, all,
			[]string{"-m", model("bert"), "--embeddings", "-p", "one\ntwo", "-t", "1", "--no-repack"})},
		{name: "samples", args: run("4", "--tap-tensors", "l_out", "--tap-samples", "faults", "--tap-host", "system"),
			sampled: true},
		{name: "resumed", args: run("300", "--tap-tensors", "l_out", "--checkpoint-every", "5"), killed: 40},
		{name: "segments", args: run("40", "--tap-tensors", "l_out", "--tap-codec", "none", "--tap-segment", "64K")},
	}
}

// TestReference records twelve small runs and compares every file of each with the digests in testdata/reference.
// With LLAMATAP_REFERENCE=FOLDER it compares with recordings by the binaries in FOLDER instead, values included, and
// prints the first difference of each part.
func TestReference(t *testing.T) {
	t.Setenv("LLAMATAP_MEMORY", "")         // the digests are those of the defaults
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // and of a machine whose limits nobody measured
	bin := filepath.Dir(testenv.NeedBinary(t))
	got := recordings(t, bin)
	if folder := os.Getenv("LLAMATAP_REFERENCE"); folder != "" {
		want := recordings(t, folder)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			t.Run(name, func(t *testing.T) { sameRecording(t, got[name], want[name]) })
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		t.Run(name, func(t *testing.T) { sameDigests(t, name, got[name]) })
	}
}

// recordings makes the references with the binaries of a folder.
func recordings(t *testing.T, bin string) map[string]normalised {
	t.Helper()
	folder := t.TempDir()
	var lock sync.Mutex
	dirs := map[string]string{}
	byDir := map[string]normalised{}
	t.Run("record", func(t *testing.T) {
		for _, r := range references(t) {
			t.Run(r.name, func(t *testing.T) {
				if r.sampled {
					testenv.NeedBPF(t)
				}
				t.Parallel()
				out := filepath.Join(folder, r.name)
				if r.killed > 0 {
					recordKilled(t, bin, out, r)
					r.args = []string{"run", "--tap-resume", dirOf(t, out)}
				}
				finish(t, exec.Command(filepath.Join(bin, "llamatap"), r.args...), out).good(t)
				dir := dirOf(t, out)
				n := normalise(t, dir)
				lock.Lock()
				defer lock.Unlock()
				dirs[r.name], byDir[dir] = dir, n
			})
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	normaliseTables(t, byDir)
	all := map[string]normalised{}
	for _, r := range references(t) {
		dir, ok := dirs[r.name]
		if !ok {
			continue // the machine lacks what it needs
		}
		if all[r.name] = byDir[dir]; r.sampled {
			all[r.name].schemaOnly()
		}
	}
	return all
}

// recordKilled records a run that is killed, collector and all, when its checkpoint holds enough tokens.
func recordKilled(t *testing.T, bin, out string, r reference) {
	t.Helper()
	for range 20 {
		g := &going{cmd: exec.Command(filepath.Join(bin, "llamatap"), r.args...), out: out, exited: make(chan struct{})}
		g.cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+out)
		g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := g.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { g.cmd.Wait(); close(g.exited) }()
		killed := g.killedAt(t, r.killed)
		<-g.exited
		if killed && resumes(t, out) {
			return
		}
		for _, dir := range runDirs(t, out) { // it was faster
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatalf("%s: the run ended before token %d twenty times: give it more tokens", r.name, r.killed)
}

// schemaOnly removes the rows of tables and the totals of what was sampled.
func (n normalised) schemaOnly() {
	delete(n["metadata.json"], "extra")
	for file, parts := range n {
		if !strings.HasSuffix(file, ".parquet") {
			continue
		}
		for name := range parts {
			if name != "schema" {
				delete(parts, name)
			}
		}
	}
}

// sameRecording compares two recordings of one machine and reports each part's first difference.
func sameRecording(t *testing.T, got, want normalised) {
	t.Helper()
	for _, file := range names(got, want) {
		for _, name := range names(got[file], want[file]) {
			a, b := got[file][name], want[file][name]
			if a == nil || b == nil {
				t.Errorf("%s, %s: recorded %v, by the reference %v", file, name, a != nil, b != nil)
				continue
			}
			if slices.Equal(a.lines, b.lines) {
				continue
			}
			i := 0
			for i < len(a.lines) && i < len(b.lines) && a.lines[i] == b.lines[i] {
				i++
			}
			t.Errorf("%s, %s: %d values, by the reference %d; number %d is\n%s\nand by the reference\n%s", file, name,
				len(a.lines), len(b.lines), i, lineAt(a.lines, i), lineAt(b.lines, i))
		}
	}
}

// lineAt is a line, or that there is none.
func lineAt(lines []string, i int) string {
	if i >= len(lines) {
		return "(no more)"
	}
	return lines[i]
}

// names are the keys of two maps in order.
func names[V any, M ~map[string]V](a, b M) []string {
	all := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(all)
	return slices.Compact(all)
}

// sameDigests compares a recording with its committed digests.
func sameDigests(t *testing.T, name string, got normalised) {
	t.Helper()
	digests := map[string]map[string]string{}
	for file, parts := range got {
		digests[file] = map[string]string{}
		for name, p := range parts {
			if !p.local {
				digests[file][name] = p.digest()
			}
		}
	}
	path := filepath.Join("testdata", "reference", name+".json")
	if *update {
		text, err := json.MarshalIndent(digests, "", " ")
		if err == nil {
			err = os.WriteFile(path, append(text, '\n'), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var want map[string]map[string]string
	if err := json.Unmarshal(content(t, path), &want); err != nil {
		t.Fatal(err)
	}
	for _, file := range names(digests, want) {
		for _, name := range names(digests[file], want[file]) {
			if a, b := digests[file][name], want[file][name]; a != b {
				t.Errorf("%s, %s: count and hash are %q, want %q; LLAMATAP_REFERENCE=FOLDER compares the values "+
					"with those of the binaries in FOLDER", file, name, a, b)
			}
		}
	}
}
