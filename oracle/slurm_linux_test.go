package oracle

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/mrm/verdict"
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

// TestSlurm submits what mrm plan --emit slurm writes to a real Slurm of one node: every cell has its sealed run.
func TestSlurm(t *testing.T) {
	testenv.Slow(t)
	environ := cluster(t)
	shared := t.TempDir()
	config := filepath.Join(shared, "e.yaml")
	if err := os.WriteFile(config, []byte(
		"experiment: {name: cluster, repetitions: 2}\nengine: {n_ctx: 256, kv_type: [f16, q8_0]}\nworkload: "+
			"{prompts: \"func main() {\", max_tokens: 16}\ntelemetry: {baseline_s: 0.1}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	emit := exec.Command(testenv.NeedBinary(t), "mrm", "plan", "--config", "e.yaml", "--emit", "slurm",
		"--program", testenv.NeedBinary(t))
	emit.Dir = shared
	script, err := emit.Output()
	if err != nil {
		t.Fatal(err)
	}
	submit := exec.Command("sbatch", "--wait")
	submit.Stdin, submit.Dir, submit.Env = strings.NewReader(string(script)), shared, environ
	if out, err := submit.CombinedOutput(); err != nil {
		logs, _ := filepath.Glob(filepath.Join(shared, "*.log"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", log, text)
		}
		t.Fatalf("sbatch: %v: %s\n%s", err, out, script)
	}
	cells := map[string]bool{}
	for _, pattern := range []string{"results/*/run_*", "results/contaminated/*/run_*"} {
		dirs, _ := filepath.Glob(filepath.Join(shared, pattern))
		for _, dir := range dirs {
			m, err := verdict.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			cells[m.Cell.Name()] = true
		}
	}
	if len(cells) != 4 {
		t.Errorf("%d of 4 cells: %v", len(cells), cells)
	}
}
