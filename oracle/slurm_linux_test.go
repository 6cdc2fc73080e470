package oracle

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
)

// slurmConf is a cluster of one node, without a daemon of its own for accounts.
const slurmConf = `ClusterName=llamatap
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge.socket
CryptoType=crypto/munge
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/slurmd.pid
SlurmctldLogFile=%[2]s/slurmctld.log
SlurmdLogFile=%[2]s/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=%[3]d RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`

// cluster starts Slurm on this machine and returns what finds it.
func cluster(t *testing.T) (environ []string) {
	t.Helper()
	testenv.NeedRoot(t)
	programs := map[string]string{}
	for _, name := range []string{"munged", "mungekey", "slurmctld", "slurmd", "sbatch", "squeue"} {
		programs[name] = testenv.NeedSlurm(t, name)
	}
	dir, err := os.MkdirTemp("", "slurm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	conf := filepath.Join(dir, "slurm.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, slurmConf, host, dir, runtime.NumCPU()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"state", "spool"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(programs["mungekey"], "--create", "--keyfile="+dir+
		"/munge.key").CombinedOutput(); err != nil {
		t.Fatalf("mungekey: %v: %s", err, out)
	}
	daemon(t, dir, programs["munged"], "--foreground", "--force", "--key-file="+dir+"/munge.key", "--socket="+dir+
		"/munge.socket", "--pid-file="+dir+"/munge.pid",
		"--log-file="+dir+"/munge.log", "--seed-file="+dir+"/munge.seed")
	awaitCluster(t, dir, "munge's socket", func() bool { _, err := os.Stat(dir + "/munge.socket"); return err == nil })
	daemon(t, dir, programs["slurmctld"], "-D", "-f", conf)
	daemon(t, dir, programs["slurmd"], "-D", "-f", conf, "-N", host)
	environ = append(os.Environ(), "SLURM_CONF="+conf)
	awaitCluster(t, dir, "the node", func() bool {
		cmd := exec.Command("sinfo", "-h", "-o", "%t")
		cmd.Env = environ
		out, err := cmd.Output()
		return err == nil && strings.TrimSpace(string(out)) == "idle"
	})
	return environ
}

// daemon starts a program that ends with the test.
func daemon(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	log, err := os.Create(filepath.Join(dir, filepath.Base(program)+".out"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		log.Close()
	})
}

// awaitCluster waits until something is so, two minutes at most, and else shows the logs of a folder.
func awaitCluster(t *testing.T, dir, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			logs, _ := filepath.Glob(filepath.Join(dir, "*.[lo][ou]*"))
			for _, log := range logs {
				text, _ := os.ReadFile(log)
				t.Logf("%s:\n%s", log, text)
			}
			t.Fatalf("%s is not there", what)
		}
	}
}

// sweep is an experiment whose array of jobs runs on a cluster.
type sweep struct {
	dir     string // shared by all nodes
	script  string // for sbatch
	environ []string
}

// newSweep writes the experiment, and its script as mrm plan --emit slurm does.
func newSweep(t *testing.T, environ []string, config string) *sweep {
	t.Helper()
	s := &sweep{dir: t.TempDir(), environ: environ}
	if err := os.WriteFile(filepath.Join(s.dir, "e.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	emit := exec.Command(testenv.NeedBinary(t), "mrm", "plan", "--config", "e.yaml", "--emit", "slurm",
		"--program", testenv.NeedBinary(t))
	emit.Dir = s.dir
	script, err := emit.Output()
	if err != nil {
		t.Fatal(err)
	}
	s.script = string(script)
	return s
}

// do runs a program of Slurm and returns what it prints. The script is its input.
func (s *sweep) do(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Dir, cmd.Env = strings.NewReader(s.script), s.dir, s.environ
	out, err := cmd.CombinedOutput()
	if err != nil {
		logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", log, text)
		}
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// cells are the sealed runs of the sweep, by cell. Two of one cell are an error.
func (s *sweep) cells(t *testing.T) map[string]string {
	t.Helper()
	cells := map[string]string{}
	for _, pattern := range []string{"results/*/run_*", "results/contaminated/*/run_*"} {
		dirs, _ := filepath.Glob(filepath.Join(s.dir, pattern))
		for _, dir := range dirs {
			m, err := memory.ReadMetadata(dir)
			if err != nil {
				t.Fatal(err)
			}
			if other := cells[m.Cell.Name()]; other != "" {
				t.Errorf("cell %s has two runs: %s and %s", m.Cell.Name(), other, dir)
			}
			cells[m.Cell.Name()] = dir
		}
	}
	return cells
}

// running waits until a task records, and returns its job: one whose run is not among those before.
func (s *sweep) running(t *testing.T, before []string) (job string, live []string) {
	t.Helper()
	testenv.Until(t, "a task that records", func() bool {
		live = nil
		dirs, _ := filepath.Glob(filepath.Join(s.dir, "results/.mrm/cluster/cell-*/out/*/run_*/metadata.json"))
		for _, path := range dirs {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "manifest.json")); err != nil &&
				!slices.Contains(before, path) {
				live = append(live, path)
			}
		}
		job, _, _ = strings.Cut(s.do(t, "squeue", "-h", "-t", "R", "-r", "-o", "%i"), "\n")
		return len(live) > 0 && job != ""
	})
	return job, live
}

// TestSlurm submits what mrm plan --emit slurm writes to a real Slurm of one node. A task that is requeued while it
// records is run again, one that is killed leaves its cell to the next submission, and in the end every cell has one
// sealed run; those that were sealed before are not run again.
func TestSlurm(t *testing.T) {
	testenv.Slow(t)
	s := newSweep(t, cluster(t), "experiment: {name: cluster, repetitions: 2}\nengine: {n_ctx: 2048, kv_type: "+
		"[f16, q8_0]}\nworkload: {prompts: \"func main() {\", max_tokens: 600}\ntelemetry: {baseline_s: 0.1}\n")
	array := s.do(t, "sbatch", "--parsable")
	first, seen := s.running(t, nil)
	s.do(t, "scontrol", "requeue", first)
	second, more := s.running(t, seen)
	s.do(t, "scancel", "--signal=KILL", "--full", second)
	testenv.Until(t, "the end of the array", func() bool { return s.do(t, "squeue", "-h", "-j", array) == "" })
	before := s.cells(t)
	if len(before) == 4 || len(more) == 0 {
		t.Errorf("task %s was killed, and all cells have runs: %v", second, before)
	}
	s.do(t, "sbatch", "--wait")
	after := s.cells(t)
	if len(after) != 4 {
		t.Errorf("%d of 4 cells: %v", len(after), after)
	}
	for cell, dir := range before {
		if after[cell] != dir {
			t.Errorf("cell %s was run again: %s, before %s", cell, after[cell], dir)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "results/.mrm/cluster/cell-*/out/*/run_*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	t.Logf("%s was requeued, %s killed; %d cells were sealed by then", first, second, len(before))
}
