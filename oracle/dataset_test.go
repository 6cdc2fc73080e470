//go:build linux

package oracle

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/export"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// manyPrompts writes prompts of 1 to 60 tokens, and returns their lengths by id.
func manyPrompts(t *testing.T, n int) (path string, lengths map[string]int64) {
	t.Helper()
	var lines strings.Builder
	random := rand.New(rand.NewPCG(3, 4))
	lengths = map[string]int64{}
	for i := range n {
		ids := make([]int, 1+random.IntN(60))
		for k := range ids {
			ids[k] = 20 + random.IntN(1000)
		}
		text, _ := json.Marshal(map[string]any{"id": fmt.Sprint("p", i), "prompt": ids})
		fmt.Fprintf(&lines, "%s\n", text)
		lengths[fmt.Sprint("p", i)] = int64(len(ids))
	}
	return textFile(t, lines.String()), lengths
}

// datasetArgs capture the residual stream of prompts, in shards of a MB.
func datasetArgs(prompts, results string) []string {
	return []string{"run", "--prompts", prompts, "--results", results, "-n", "0", "--all-rows", "-ub", "64", "-t",
		"1",
		"--tap-point", "resid_post"}
}

// liveInfo is llamatap.json of a dataset.
type liveInfo struct {
	Rows     int64 `json:"rows"`
	LeftOut  int64 `json:"rows_left_out"`
	Shards   int   `json:"shards"`
	Complete bool  `json:"complete"`
	Tokens   int64 `json:"tokens"`
	Prompts  int64 `json:"prompts"`
	Run      rundir.Metadata
}

func readLive(t *testing.T, dir string) (info liveInfo) {
	t.Helper()
	if err := json.Unmarshal(content(t, filepath.Join(dir, "llamatap.json")), &info); err != nil {
		t.Fatal(err)
	}
	return info
}

// shards counts the rows of each prompt in a dataset, each of whose files is whole.
func shards(t *testing.T, dir string) (files []string, rows map[string]int64, all int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "data", "train-*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	rows = map[string]int64{}
	for _, path := range files {
		reader, err := table.NewReader(bytes.NewReader(content(t, path)))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all += reader.Rows()
		for group := range reader.Groups() {
			ids, err := reader.Column(group, "prompt_id")
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids.Texts {
				rows[string(id)]++
			}
		}
	}
	return files, rows, all
}

// TestDataset: rows that go straight into shards make the files that an export makes of a run directory, byte by byte,
// but for what the footer says of their source; and llamatap.json has the account of the run.
func TestDataset(t *testing.T) {
	prompts, lengths := manyPrompts(t, 60)
	dir := t.TempDir()
	live, exported := filepath.Join(dir, "live"), filepath.Join(dir, "exported")
	results := filepath.Join(dir, "results.jsonl")
	o := llamatap(t, append(datasetArgs(prompts, results), "--tap-dataset", live, "--tap-dataset-window", "500",
		"--tap-dataset-shard-mb", "1", "--tap-dataset-seed", "7")...).good(t)
	if v := verifyJSON(t, o.dirs[0]); !v.OK {
		t.Errorf("%+v", v.Findings)
	}
	again := filepath.Join(dir, "again.jsonl")
	run := llamatap(t, datasetArgs(prompts, again)...).good(t).dirs[0]
	llamatap(t, "export", run, "--to", "dataset", "--shuffle-window", "500", "--shard-mb", "1", "--seed", "7",
		"--results",
		again, "-o", exported).good(t)
	got, rows, all := shards(t, live)
	want, _, _ := shards(t, exported)
	if len(got) != len(want) || len(got) < 6 {
		t.Fatalf("%d shards, and %d of the export", len(got), len(want))
	}
	for i := range got {
		a, b := pages(t, got[i]), pages(t, want[i])
		if filepath.Base(got[i]) != filepath.Base(want[i]) || len(a) < 100_000 || !bytes.Equal(a, b) {
			t.Errorf("%s has %d bytes of pages, and differs from the %d of the export", got[i], len(a), len(b))
		}
	}
	total := int64(0)
	for id, n := range lengths {
		if total += n; rows[id] != n {
			t.Errorf("%d rows of prompt %s, want %d", rows[id], id, n)
		}
	}
	info := readLive(t, live)
	if !info.Complete || info.Rows != total || info.Rows != all || info.Tokens != total || info.Prompts != 60 ||
		info.LeftOut != 0 || info.Shards != len(got) {
		t.Errorf("llamatap.json says %+v of %d tokens", info, total)
	}
	a := info.Run.Account
	if a == nil || a.Captured != a.Selected || a.Captured.Bytes != uint64(total)*6*256*4 || len(a.Lost) > 0 {
		t.Errorf("account %+v of %d tokens", a, total)
	}
	if left, _ := filepath.Glob(filepath.Join(live, "*")); len(left) != 3 {
		t.Errorf("the dataset holds %q", left)
	}
	refused := llamatap(t, append(datasetArgs(prompts, results), "--tap-dataset", live)...)
	if refused.status == 0 || !strings.Contains(refused.stderr, export.ErrExists.Error()) {
		t.Errorf("a dataset that is there: status %d\n%s", refused.status, refused.stderr)
	}
}

// pages are the bytes of a Parquet file before its footer.
func pages(t *testing.T, path string) []byte {
	t.Helper()
	data := content(t, path)
	return data[:len(data)-8-int(binary.LittleEndian.Uint32(data[len(data)-8:]))]
}

// TestDatasetKilled: a run that is killed leaves the shards of whole windows, one that is interrupted those of all that
// was computed, and llamatap.json says how many prompts have all of their rows there.
func TestDatasetKilled(t *testing.T) {
	for _, s := range testenv.ByDay([]syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM}, 2) {
		t.Run(s.String(), func(t *testing.T) { datasetEnded(t, s) })
	}
}

// TestDatasetCommands: a dataset is complete where a command has written it out, and not where one has interrupted it.
func TestDatasetCommands(t *testing.T) {
	testenv.Slow(t)
	for command, complete := range map[string]bool{"flush": true, "off": false} {
		g, live, _ := datasetGoing(t, 150)
		llamatap(t, "ctl", g.out, command).good(t)
		<-g.exited
		if info := readLive(t, live); info.Complete != complete {
			t.Errorf("after %s: %+v\n%s", command, info, g.stderr.String())
		}
	}
}

// datasetGoing begins a dataset, and returns when it has rows of some windows, with the lengths of its prompts.
func datasetGoing(t *testing.T, n int) (g *going, live string, lengths map[string]int64) {
	t.Helper()
	prompts, lengths := manyPrompts(t, n)
	dir := t.TempDir()
	live = filepath.Join(dir, "live")
	g = &going{cmd: exec.Command(testenv.NeedBinary(t), append(datasetArgs(prompts, filepath.Join(dir,
		"results.jsonl")),
		"--tap-dataset", live, "--tap-dataset-window", "500", "--tap-dataset-shard-mb", "1", "--tap-out", dir)...),
		out: dir, exited: make(chan struct{})}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	g.cmd.Stderr = &g.stderr
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { g.cmd.Wait(); close(g.exited) }()
	t.Cleanup(g.killAll)
	for {
		if _, err := os.Stat(filepath.Join(live, "llamatap.json")); err == nil && readLive(t, live).Rows >= 1000 {
			break
		}
		select {
		case <-g.exited:
			t.Fatalf("it ended early\n%s", g.stderr.String())
		case <-time.After(time.Millisecond):
		}
	}
	return g, live, lengths
}

func datasetEnded(t *testing.T, by syscall.Signal) {
	g, live, lengths := datasetGoing(t, 3000)
	if by == syscall.SIGKILL {
		g.killAll()
	} else if err := syscall.Kill(-g.cmd.Process.Pid, by); err != nil {
		t.Fatal(err)
	}
	<-g.exited
	_, rows, all := shards(t, live)
	info, whole := readLive(t, live), int64(0)
	for id, n := range rows {
		if n == lengths[id] {
			whole++
		}
	}
	window := int64(0) // whose shards may have their names, while llamatap.json does not say so yet
	if by == syscall.SIGKILL {
		window = 500
	}
	if by == syscall.SIGINT && (info.Tokens != all || strings.Contains(g.stderr.String(), "--tap-dataset")) {
		t.Errorf("%d tokens, and %d rows are there: the batch that was aborted counts\n%s", info.Tokens, all,
			g.stderr.String())
	}
	if info.Complete || window > 0 && info.Rows%window != 0 || all != info.Rows && all != info.Rows+window {
		t.Errorf("llamatap.json says %+v, and %d rows are there", info, all)
	}
	if info.Rows == all && info.Prompts != whole {
		t.Errorf("llamatap.json says %d prompts, and %d are whole", info.Prompts, whole)
	}
}

// TestDatasetDisk: a dataset keeps within --tap-max-disk and leaves --tap-min-free on its own disk; where that is full,
// recording ends, the model does not, and shards that are there are whole.
func TestDatasetDisk(t *testing.T) {
	testenv.Slow(t)
	prompts, _ := manyPrompts(t, 120)
	run := func(size string, args ...string) (o outcome, live string, held int64) {
		t.Helper()
		dir := t.TempDir()
		if live = filepath.Join(dir, "live"); size != "" {
			live = filepath.Join(smallDisk(t, size), "live")
		}
		results := filepath.Join(dir, "results.jsonl")
		o = llamatap(t, slices.Concat(datasetArgs(prompts, results), []string{"--tap-dataset", live,
			"--tap-dataset-window", "500", "--tap-dataset-shard-mb", "1"}, args)...)
		if n := bytes.Count(content(t, results), []byte("\n")); n != 120 {
			t.Fatalf("%d of 120 prompts have results\n%s", n, o.stderr)
		}
		files, _, all := shards(t, live)
		for _, path := range files {
			held += int64(len(content(t, path)))
		}
		if info := readLive(t, live); info.Rows != all || info.Shards != len(files) || info.Tokens < info.Rows ||
			info.Complete != (len(args) == 0) {
			t.Errorf("llamatap.json says %+v, and %d rows are in %d shards", info, all, len(files))
		}
		if left, _ := filepath.Glob(filepath.Join(live, "spill", "*")); len(left) > 0 {
			t.Errorf("rows are left outside of shards: %q", left)
		}
		return o, live, held
	}
	_, _, whole := run("")
	for _, c := range []struct {
		size, says, cause string
		args              []string
		bound             int64
	}{
		{"", "--tap-max-disk 8M", "max_disk", []string{"--tap-max-disk", "8M"}, 8 << 20},
		{"64m", "live; the program continues", "min_free", []string{"--tap-min-free", "56M"}, 8 << 20},
		{"8m", "live is full", "disk_full", []string{"--tap-min-free", "0"}, 8 << 20},
	} {
		o, live, held := run(c.size, c.args...)
		if !strings.Contains(o.stderr, c.says) || held > c.bound || held < c.bound/8 || whole < c.bound {
			t.Errorf("%q: status %d, %d bytes of shards, %d without a bound\n%s", c.args, o.status, held, whole,
				o.stderr)
		}
		v, a := verifyJSON(t, o.dirs[0]), readLive(t, live).Run.Account
		if len(v.Findings) != 1 || !strings.Contains(v.Findings[0].What, c.cause) {
			t.Errorf("%q: %+v", c.args, v.Findings)
		}
		if a == nil || len(a.Lost) != 1 || a.Lost[0].Cause != c.cause || // a tensor may have rows in two windows
			a.Captured.Bytes > uint64(readLive(t, live).Rows)*6*256*4 {
			t.Errorf("%q: account %+v of %d rows", c.args, a, readLive(t, live).Rows)
		}
	}
}
