//go:build linux && amd64

package oracle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"github.com/llamatap/llamatap/store/table"
)

// killedRuns are runs that together have every recorder on. Flags that exclude one another are in different ones:
// rows and windows of the ledger; checkpoints and regions, ledger or samples; states of checkpoints and any
// recorder but that of tensors.
var killedRuns = []struct {
	name  string
	args  []string
	files []string // that it leaves, segments aside
}{
	{"one stream", []string{"--tap-attention", "keep", "--tap-resource-level", "VERBOSE", "--tap-legacy-estimates",
		"--tap-kv", "--tap-kv-block", "1",
		"--tap-regions", "--tap-ledger", "--tap-samples", "perf:faults,pages", "--tap-process-interval", "50ms",
		"--tap-host", "all",
		"--tap-host-interval", "50ms", "--tap-host-details", "--tap-sync", "token"},
		append(killedFiles, "activations.stream")},
	{"segments", []string{"--tap-segment", "64K", "--tap-codec", "none", "--tap-resource-level", "VERBOSE", "--tap-kv",
		"--tap-regions", "--tap-ledger", "windows", "--tap-ledger-window",
		"20ms", "--tap-samples", "perf:faults,pages", "--tap-process-interval", "50ms", "--tap-host", "all",
		"--tap-host-interval", "50ms", "--tap-host-details",
		"--tap-preallocate", "1M"}, append(killedFiles, "seg-00001", "seg-00002")},
	{"checkpoints", []string{"--tap-resource-level", "DETAILED", "--tap-kv", "--tap-host", "all",
		"--tap-host-interval", "50ms",
		"--tap-checkpoint-every", "4"}, []string{"activations.stream", "resource.jsonl", "kv_block_lifecycle.parquet"}},
	{"states", []string{"--tap-checkpoint-every", "4", "--tap-checkpoint-state", "--tap-sync", "none"},
		[]string{"activations.stream"}},
}

var killedFiles = []string{"resource.jsonl", "kv_block_lifecycle.parquet", "region_map.parquet", "trace.parquet",
	"process.jsonl"}

// killedHostFiles are those of the collectors of --tap-host all, on a machine where they can run.
var killedHostFiles = []string{"block_io.jsonl", "system_metrics.jsonl", "llm_prof.jsonl", "host_self.jsonl",
	"host_waits.jsonl", "host_faults.jsonl"}

// kills counts what of one of killedRuns was killed, and where.
type kills struct {
	name     string
	args     []string
	stream   []byte // of a run that was not killed, its segments' one after the other
	tokens   []rundir.TokenRecord
	packets  uint64
	lasts    time.Duration
	metadata rundir.Metadata
	at       map[string]int // by call and file
	begun    int            // runs of which something was to be repaired
	points   [2][]int       // that are still to come in this pass, of a run and of a repair
	passes   [2]int         // begun
	random   *rand.Rand
	spare    string // a killed run, for repairs; another one for each pass
	power    bool   // its power is cut: what no sync put on the disk may lack parts in the middle
}

// TestKills kills the collector at random moments, and it and 'verify --repair' at every rename, sync, removal and
// cut, with every recorder on: a repair afterwards leaves a sealed run that holds all that was committed, byte for
// byte, with metadata, tokens and texts, every whole line and table that was there, and nothing else.
// LLAMATAP_KILLS is how many processes are killed.
func TestKills(t *testing.T) {
	total := 2
	if testenv.Nightly() {
		total = 40
	}
	if n, err := strconv.Atoi(os.Getenv("LLAMATAP_KILLS")); err == nil {
		total = n
	}
	var all []*kills
	for i := range killedRuns {
		if i < 2 || total >= 3*len(killedRuns) {
			all = append(all, newKills(t, i, uint64(total)))
		}
	}
	if total == 2 { // a run that is not killed need not count the points: each has more than these
		for _, k := range all {
			k.points[0] = k.random.Perm(60)
		}
	}
	killed, tried := 0, 0
	for ; killed < total && tried < 4*total+20; tried++ {
		k := all[tried%len(all)]
		out := t.TempDir()
		if k.kill(t, out, tried/len(all)+1) {
			killed++
		}
		awaitEnd(t, out)
		for _, dir := range runDirs(t, out) {
			if (tried/len(all)+1)%3 < 2 && len(k.points[1]) == 0 {
				k.keep(t, dir)
			}
			k.check(t, fmt.Sprintf("%s, kill %d", k.name, killed), dir)
		}
		if t.Failed() {
			t.Fatalf("after %d kills: %v", killed, k.at)
		}
		os.RemoveAll(out)
	}
	if killed < total {
		t.Errorf("%d of %d were killed: the others were faster", killed, total)
	}
	t.Logf("%d killed", killed)
	for _, k := range all {
		t.Logf("%s: %d left a run to repair; passes over all points of a run: %d, of a repair: %d, of which %d and "+
			"%d are left", k.name,
			k.begun, k.passes[0], k.passes[1], len(k.points[0]), len(k.points[1]))
		for _, name := range slices.Sorted(maps.Keys(k.at)) {
			t.Logf("%5d %s", k.at[name], name)
		}
	}
}

// newKills records a run that is not killed, to compare with.
func newKills(t *testing.T, i int, seed uint64) *kills {
	run := killedRuns[i]
	k := &kills{name: run.name, args: killedArgs(i), at: map[string]int{},
		random: rand.New(rand.NewPCG(seed, uint64(i)))}
	began := time.Now()
	o := llamatap(t, k.args...).good(t)
	k.lasts = time.Since(began)
	k.compareWith(t, o.dirs[0], i)
	return k
}

// killedArgs is the command line of one of killedRuns.
func killedArgs(i int) []string {
	return slices.Concat([]string{"run", "--tap-tensors", "l_out*", "--tap-on-failure", "stop"}, killedRuns[i].args,
		[]string{"-t", "1", "--temp", "0", "-p", "func main() {", "-n", "24", "--ignore-eos"})
}

// compareWith takes what to compare with from a run that was not killed.
func (k *kills) compareWith(t *testing.T, dir string, i int) {
	t.Helper()
	run := killedRuns[i]
	var err error
	if k.metadata, err = rundir.ReadMetadata(dir); err != nil {
		t.Fatal(err)
	}
	files := run.files
	if slices.Contains(run.args, "--tap-host") {
		var host struct {
			Missing []struct{ Collector, Reason string }
		}
		if err := json.Unmarshal(k.metadata.Extra["host_collectors"], &host); err != nil {
			t.Errorf("extra.host_collectors: %v", err)
		}
		if t.Logf("%s: collectors that cannot run here: %v", run.name, host.Missing); len(host.Missing) == 0 {
			files = append(slices.Clone(files), killedHostFiles...)
			if !slices.Contains(run.args, "--tap-host-details") {
				files = files[:len(files)-1]
			}
		}
	}
	for _, name := range files {
		var err error
		if tableName, ok := strings.CutSuffix(name, ".parquet"); ok {
			_, err = table.Paths(dir, tableName) // on a slow machine it lies in several files
		} else {
			_, err = os.Stat(filepath.Join(dir, name))
		}
		if err != nil {
			t.Errorf("the run that is not killed: %v", err)
		}
	}
	for _, part := range parts(t, dir) {
		s, err := stream.Open(filepath.Join(part, "activations.stream"))
		if err != nil {
			t.Fatal(err)
		}
		k.packets += s.Info().Totals.Packets
		s.Close()
		k.stream = append(k.stream, content(t, filepath.Join(part, "activations.stream"))...)
		k.tokens = append(k.tokens, tokensOf(t, part)...)
	}
}

// parts are the directories of a run that hold streams: its segments, or itself.
func parts(t *testing.T, dir string) (all []string) {
	t.Helper()
	names, err := rundir.Segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		all = append(all, filepath.Join(dir, name))
	}
	if len(all) == 0 {
		return []string{dir}
	}
	return all
}

// kill kills a process in one of the ways, in turn; false if it ended before.
func (k *kills) kill(t *testing.T, out string, turn int) bool {
	switch turn % 3 {
	case 0:
		return k.anytime(t, out, k.lasts/5+time.Duration(k.random.Int64N(int64(k.lasts))), turn%2 == 0)
	case 1:
		if len(k.points[0]) == 0 {
			k.inject(t, 0, k.args, out)
		}
		return k.inject(t, 0, k.args, out)
	}
	return k.spare != "" && k.repairing(t, out)
}

// awaitEnd waits for the end of what was started with an output folder: the model, which holds the folder of its
// states, outlives the collector that was killed.
func awaitEnd(t *testing.T, out string) {
	t.Helper()
	testenv.Until(t, "the end of the model", func() bool {
		all, _ := filepath.Glob("/proc/[0-9]*/environ")
		return !slices.ContainsFunc(all, func(path string) bool {
			environ, _ := os.ReadFile(path) // it has ended, else
			return bytes.Contains(environ, []byte("LLAMATAP_OUT="+out+"\x00"))
		})
	})
}

// anytime kills the collector after a while, alone or with its model.
func (k *kills) anytime(t *testing.T, out string, after time.Duration, both bool) bool {
	cmd := exec.Command(testenv.NeedBinary(t), k.args...)
	cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+out)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	if both {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	} else {
		cmd.Process.Kill()
	}
	err := cmd.Wait()
	unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // the model, which would end by itself
	if err == nil {
		return false
	}
	k.at["random moment"]++
	return true
}

// inject runs a command and kills it at the next point of its kind; false if it ends before.
func (k *kills) inject(t *testing.T, kind int, args []string, out string) bool {
	start := func(n int) (string, int) {
		cmd := exec.Command(testenv.NeedBinary(t), args...)
		cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+out)
		return killAtCall(t, cmd, n)
	}
	if len(k.points[kind]) == 0 { // all are passed; one that is not killed is counted
		_, n := start(0)
		k.points[kind] = k.random.Perm(n)
		k.passes[kind]++
		return false
	}
	point := k.points[kind][0]
	k.points[kind] = k.points[kind][1:]
	at, _ := start(point + 1)
	if at == "" {
		return false // it made fewer calls than the one that was counted
	}
	k.at[[]string{"run: ", "repair: "}[kind]+at]++
	return true
}

// keep keeps a copy of a killed run for repairs.
func (k *kills) keep(t *testing.T, dir string) {
	if _, err := os.Stat(filepath.Join(dir, rundir.ManifestName)); err == nil {
		return
	}
	all := parts(t, dir)
	if info, err := os.Stat(filepath.Join(all[0], "activations.stream.idx")); err != nil || info.Size() < 1000 {
		return
	}
	k.spare = filepath.Join(t.TempDir(), filepath.Base(dir))
	copyRun(t, dir, k.spare)
}

// copyRun copies a run directory with the folders in it.
func copyRun(t *testing.T, from, to string) {
	t.Helper()
	copyFiles(t, from, to)
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			copyRun(t, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	}
}

// repairing kills a repair of a killed run.
func (k *kills) repairing(t *testing.T, out string) bool {
	copied := filepath.Join(out, "model", filepath.Base(k.spare))
	copyRun(t, k.spare, copied)
	return k.inject(t, 1, []string{"verify", "--repair", copied}, out)
}

// committed is what a run that was killed holds for good: a repair must keep it.
type committed struct {
	commits uint64
	files   map[string][]byte // of sealed segments, tables that are whole, and whole lines, by path
}

func readCommitted(t *testing.T, dir string) (c committed) {
	t.Helper()
	c.files = map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || e.Name()[0] == '.' {
			return err
		}
		_, missing := os.Stat(filepath.Join(filepath.Dir(path), rundir.ManifestName))
		lines := strings.HasSuffix(path, ".jsonl")
		if missing != nil && !lines && !strings.HasSuffix(path, ".parquet") ||
			strings.HasSuffix(path, rundir.CheckpointSuffix) {
			return nil
		}
		data := content(t, path)
		if lines {
			data = data[:bytes.LastIndexByte(data, '\n')+1]
		}
		if filepath.Dir(path) == dir && e.Name() == rundir.ManifestName {
			return nil // may be replaced
		}
		c.files[path] = data
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts(t, dir) {
		if s, err := stream.Open(filepath.Join(part, "activations.stream")); err == nil {
			c.commits += s.Info().Totals.Commits
			s.Close()
		}
	}
	return c
}

// check repairs a run that was killed, and compares it with one that was not.
func (k *kills) check(t *testing.T, what, dir string) {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, rundir.MetadataName))
	described := err == nil
	_, err = os.Stat(filepath.Join(dir, rundir.ManifestName))
	sealed := err == nil
	k.begun++
	before := readCommitted(t, dir)
	o := llamatap(t, "verify", "--repair", dir)
	v := verifyJSON(t, dir)
	if !v.Sealed || slices.Contains(v.kinds(), "damage") || slices.Contains(v.kinds(), "unsealed") ||
		v.OK != (o.status == 0) || o.status > 1 {
		t.Errorf("%s: status %d, %+v\n%s", what, o.status, v, o.stderr)
		return
	}
	if again := llamatap(t, "verify", "--repair", dir); again.status != o.status ||
		strings.Contains(again.stderr, "repair ") {
		t.Errorf("%s: repaired again: status %d\n%s", what, again.status, again.stderr)
	}
	k.checkFolders(t, what, dir)
	m, err := rundir.ReadMetadata(dir)
	if err != nil || m.RunID != filepath.Base(dir) || m.Lossy == v.OK || !sealed && len(m.Repaired) == 0 {
		t.Errorf("%s: metadata %+v, %v; %+v", what, m, err, v)
	}
	if described && (m.Model != k.metadata.Model || len(m.Command) != len(k.metadata.Command) || m.Created.IsZero() ||
		m.Config == nil) {
		t.Errorf("%s: metadata %+v", what, m)
	}
	after := readCommitted(t, dir)
	for path, data := range before.files {
		if left, found := after.files[path]; !found {
			t.Errorf("%s: %s is gone", what, path)
		} else if !bytes.Equal(left, data) && !(strings.HasSuffix(path, ".jsonl") && bytes.HasPrefix(left, data)) {
			t.Errorf("%s: %s has changed: %d bytes, and %d before", what, path, len(left), len(data))
		}
	}
	var all []byte
	var tokens []rundir.TokenRecord
	var sum stream.Totals
	for _, part := range parts(t, dir) {
		s, err := stream.Open(filepath.Join(part, "activations.stream"))
		if errors.Is(err, fs.ErrNotExist) && before.commits == 0 && !v.OK {
			return // it had no stream yet, and is marked as lossy
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		defer s.Close()
		totals := s.Info().Totals
		sum.Commits, sum.Packets, sum.Rows = sum.Commits+totals.Commits, sum.Packets+totals.Packets,
			sum.Rows+totals.Rows
		all = append(all, content(t, filepath.Join(part, "activations.stream"))...)
		tokens = append(tokens, tokensOf(t, part)...)
	}
	if sum.Commits < before.commits && !k.power || sum.Packets > k.packets {
		t.Errorf("%s: %d commits before the repair, and %+v", what, before.commits, sum)
	}
	if !bytes.HasPrefix(k.stream, all) && !k.power {
		t.Errorf("%s: the stream is not the beginning of that of a whole run", what)
	}
	k.checkTokens(t, what, tokens, sum.Rows)
}

// checkFolders looks for what a killed process has left, and for half lines.
func (k *kills) checkFolders(t *testing.T, what, dir string) {
	t.Helper()
	for _, folder := range append(parts(t, dir), dir, filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), ".part") || e.Name() == "control.sock" ||
				e.Name() == rundir.StateFolder || strings.HasSuffix(e.Name(), rundir.CheckpointSuffix) {
				t.Errorf("%s: %s is left in %s", what, e.Name(), folder)
			}
			if !strings.HasSuffix(e.Name(), ".jsonl") {
				continue
			}
			text := content(t, filepath.Join(folder, e.Name()))
			for line := range bytes.Lines(text) {
				if line[len(line)-1] != '\n' || !json.Valid(line) {
					t.Errorf("%s: %s holds %q", what, e.Name(), line)
				}
			}
		}
	}
}

// tokensOf reads the tokens file of a run or a segment.
func tokensOf(t *testing.T, dir string) []rundir.TokenRecord {
	t.Helper()
	var file struct {
		Total  int                  `json:"total_tokens"`
		Tokens []rundir.TokenRecord `json:"tokens"`
	}
	if err := json.Unmarshal(content(t, filepath.Join(dir, rundir.TokensName)), &file); err != nil {
		t.Fatal(err)
	}
	if file.Total != len(file.Tokens) {
		t.Errorf("%s says %d tokens, and lists %d", dir, file.Total, len(file.Tokens))
	}
	return file.Tokens
}

// checkTokens compares tokens and their texts with those of the whole run.
func (k *kills) checkTokens(t *testing.T, what string, tokens []rundir.TokenRecord, rows uint64) {
	t.Helper()
	if uint64(len(tokens)) > rows || len(tokens) > len(k.tokens) {
		t.Errorf("%s: %d tokens of %d rows", what, len(tokens), rows)
		return
	}
	for i, token := range tokens {
		at := i
		if k.power {
			at = int(min(token.Index, int64(len(k.tokens)-1)))
		}
		want := k.tokens[at]
		if k.power && token.Request == nil {
			want.Request = nil // after a gap nothing says which request it is
		}
		if at != i && token.Text == "" {
			want.Text = "" // nor how it reads, where the gap had that
		}
		if timeless(token) != timeless(want) {
			t.Errorf("%s: token %d is %s, want %s", what, i, timeless(token), timeless(want))
			return
		}
	}
}
