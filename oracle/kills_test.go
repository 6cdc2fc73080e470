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

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"golang.org/x/sys/unix"
)

// killedArgs is a run with every recorder that needs no rights.
var killedArgs = []string{"run", "--tap-tensors", "l_out*", "--tap-resource-level", "DETAILED", "--tap-kv", "--tap-regions", "--tap-ledger", "--tap-samples", "faults",
	"--tap-on-failure", "stop", "-t", "1", "--temp", "0", "-p", "func main() {", "-n", "24", "--ignore-eos"}

// kills counts what was killed and where.
type kills struct {
	whole    *whole
	metadata rundir.Metadata
	at       map[string]int // by call and file
	begun    int            // runs of which something was to be repaired
	points   [2][]int       // that are still to come in this pass, of a run and of a repair
	passes   [2]int         // begun
	random   *rand.Rand
	spare    string // a killed run, for repairs; another one for each pass
}

// TestKills kills the collector at random moments, and it and 'verify --repair' at every rename, sync, removal and cut: a repair afterwards
// leaves a sealed run that holds all that was committed, byte for byte, with metadata, tokens and texts, and nothing else.
// LLAMATAP_KILLS is how many processes are killed.
func TestKills(t *testing.T) {
	total := 6
	if nightly() {
		total = 40
	}
	if n, err := strconv.Atoi(os.Getenv("LLAMATAP_KILLS")); err == nil {
		total = n
	}
	began := time.Now()
	o := llamatap(t, killedArgs...).good(t)
	lasts := time.Since(began)
	k := &kills{whole: &whole{c: o.capture(t)}, at: map[string]int{}, random: rand.New(rand.NewPCG(uint64(total), 7))}
	k.whole.stream = content(t, filepath.Join(k.whole.c.dir, "activations.stream"))
	k.metadata = k.whole.c.meta
	for _, name := range []string{"kv_block_lifecycle.parquet", "region_map.parquet", "trace.parquet", "resource.jsonl"} {
		if _, err := os.Stat(filepath.Join(k.whole.c.dir, name)); err != nil {
			t.Errorf("the run that is not killed: %v", err)
		}
	}
	killed := 0
	for i := 0; killed < total && i < 4*total+20; i++ {
		out := t.TempDir()
		ok := false
		switch i % 3 {
		case 0:
			ok = k.anytime(t, out, lasts/5+time.Duration(k.random.Int64N(int64(lasts))), i%2 == 0)
		case 1:
			ok = k.inject(t, 0, killedArgs, out)
		case 2:
			if k.spare != "" {
				ok = k.repairing(t, out)
			}
		}
		if ok {
			killed++
		}
		if len(k.points[1]) == 0 && len(runDirs(t, out)) == 1 && ok && i%3 == 0 {
			k.keep(t, dirOf(t, out))
		}
		for _, dir := range runDirs(t, out) {
			k.check(t, fmt.Sprintf("kill %d", killed), dir)
		}
		if t.Failed() {
			t.Fatalf("after %d kills", killed)
		}
		os.RemoveAll(out)
	}
	if killed < total {
		t.Errorf("%d of %d were killed: the others were faster", killed, total)
	}
	t.Logf("%d killed; %d left a run to repair; passes over all points of a run: %d, of a repair: %d, of which %d and %d are left", killed,
		k.begun, k.passes[0], k.passes[1], len(k.points[0]), len(k.points[1]))
	for _, name := range slices.Sorted(maps.Keys(k.at)) {
		t.Logf("%5d %s", k.at[name], name)
	}
}

// anytime kills the collector after a while, alone or with its model.
func (k *kills) anytime(t *testing.T, out string, after time.Duration, both bool) bool {
	cmd := exec.Command(testenv.NeedBinary(t), killedArgs...)
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
	cmd := exec.Command(testenv.NeedBinary(t), args...)
	cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+out)
	left := k.points[kind]
	if len(left) == 0 { // all are passed; this one is not killed, and counted
		_, n := killAtCall(t, cmd, 0)
		k.points[kind] = k.random.Perm(n)
		k.passes[kind]++
		return false
	}
	k.points[kind] = left[1:]
	at, _ := killAtCall(t, cmd, left[0]+1)
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
	if info, err := os.Stat(filepath.Join(dir, "activations.stream.idx")); err != nil || info.Size() < 1000 {
		return
	}
	k.spare = filepath.Join(t.TempDir(), filepath.Base(dir))
	copyFiles(t, dir, k.spare)
}

// repairing kills a repair of a killed run.
func (k *kills) repairing(t *testing.T, out string) bool {
	copied := filepath.Join(out, "model", filepath.Base(k.spare))
	copyFiles(t, k.spare, copied)
	return k.inject(t, 1, []string{"verify", "--repair", copied}, out)
}

// check repairs a run that was killed, and compares it with one that was not.
func (k *kills) check(t *testing.T, what, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, rundir.MetadataName)); err != nil {
		return // it had not begun
	}
	k.begun++
	var before stream.Totals
	name := filepath.Join(dir, "activations.stream")
	if s, err := stream.Open(name); err == nil {
		before = s.Totals()
		s.Close()
	}
	o := llamatap(t, "verify", "--repair", dir)
	v := verifyJSON(t, dir)
	if !v.Sealed || slices.Contains(v.kinds(), "damage") || slices.Contains(v.kinds(), "unsealed") || v.OK != (o.status == 0) || o.status > 1 {
		t.Errorf("%s: status %d, %+v\n%s", what, o.status, v, o.stderr)
		return
	}
	if again := llamatap(t, "verify", "--repair", dir); again.status != o.status || strings.Contains(again.stderr, "repair ") {
		t.Errorf("%s: repaired again: status %d\n%s", what, again.status, again.stderr)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), ".part") || e.Name() == "control.sock" {
			t.Errorf("%s: %s is left", what, e.Name())
		}
	}
	if m, err := rundir.ReadMetadata(dir); err != nil || m.RunID != filepath.Base(dir) || m.Model != k.metadata.Model ||
		len(m.Command) != len(k.metadata.Command) || m.Created.IsZero() || m.Config == nil {
		t.Errorf("%s: metadata %+v, %v", what, m, err)
	}
	s, err := stream.Open(name)
	if errors.Is(err, fs.ErrNotExist) && before == (stream.Totals{}) && !v.OK {
		return // it had no stream yet, and is marked as lossy
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	defer s.Close()
	if after := s.Totals(); after.Commits < before.Commits || after.Packets > uint64(len(k.whole.c.packets)) {
		t.Errorf("%s: %+v before the repair, and %+v", what, before, after)
	}
	if left := content(t, name); !bytes.HasPrefix(k.whole.stream, left) {
		t.Errorf("%s: the stream is not the beginning of that of a whole run", what)
	}
	k.checkTexts(t, what, dir, int64(s.Totals().Rows))
}

// checkTexts compares tokens and their texts with those of the whole run.
func (k *kills) checkTexts(t *testing.T, what, dir string, rows int64) {
	t.Helper()
	var file struct {
		Total  int64                `json:"total_tokens"`
		Tokens []rundir.TokenRecord `json:"tokens"`
	}
	if err := json.Unmarshal(content(t, filepath.Join(dir, rundir.TokensName)), &file); err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if file.Total != int64(len(file.Tokens)) || file.Total > rows || file.Total > int64(len(k.whole.c.tokens)) {
		t.Errorf("%s: %d tokens of %d rows", what, len(file.Tokens), rows)
		return
	}
	for i, token := range file.Tokens {
		if timeless(token) != timeless(k.whole.c.tokens[i]) {
			t.Errorf("%s: token %d is %s, want %s", what, i, timeless(token), timeless(k.whole.c.tokens[i]))
			return
		}
	}
}
