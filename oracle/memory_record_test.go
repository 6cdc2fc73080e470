//go:build linux

package oracle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"golang.org/x/sys/unix"
)

// nobody makes a command one of a user without rights, with a folder that it may write to.
func nobody(t *testing.T, cmd *exec.Cmd) (out string) {
	t.Helper()
	testenv.NeedRoot(t)
	out = t.TempDir()
	if err := os.Chmod(out, 0o777); err != nil {
		t.Fatal(err)
	}
	for dir := out; dir != "/"; dir = filepath.Dir(dir) { // the test's own folders are its user's alone
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o005 != 0o005 {
			if err := os.Chmod(dir, info.Mode().Perm()|0o055); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Env = append(os.Environ(), "HOME=/", "XDG_CACHE_HOME="+out)
	return out
}

// TestMemoryRecordWithoutRights: a user without rights gets the remedy in one line, and nothing is left; own
// programs can be sampled as far as the kernel's setting goes, and what is missing is reported.
func TestMemoryRecordWithoutRights(t *testing.T) {
	cmd := command(t, "memory", "record", "--samples", "faults", "-d", "1", "-p", "1") // root's
	out := nobody(t, cmd)
	o := finish(t, cmd, out)
	if strings.Contains(o.stderr, "permission denied: fork/exec") || o.status == 126 {
		testenv.Beyond(t, "a checkout that another user may read", o.stderr)
	}
	if o.status != 1 || len(o.dirs) != 0 || !oneLine(o.stderr, "setcap cap_perfmon", "process") && !oneLine(o.stderr,
		"run as root") {
		t.Errorf("status %d, runs %v\n%s", o.status, o.dirs, o.stderr)
	}
	cmd = command(t, "memory", "record", "--samples", "faults", "--", "true")
	out = nobody(t, cmd)
	o = finish(t, cmd, out)
	switch {
	case o.status == 0 && len(o.dirs) == 1:
		if rows, use := traceRows(t, o.dirs[0]); len(rows) == 0 || use.Lossy {
			t.Errorf("%d rows, %+v\n%s", len(rows), use, o.stderr)
		}
	case !strings.Contains(o.stderr, "kernel.perf_event_paranoid"):
		t.Errorf("status %d, runs %v\n%s", o.status, o.dirs, o.stderr)
	}
}

// TestMemoryRecordKilled: a program that is killed leaves a sealed run, with its signal as the status; one whose
// observer is killed goes on.
func TestMemoryRecordKilled(t *testing.T) {
	killed := llamatap(t, "memory", "record", "--samples", "faults", "--", "sh", "-c", "kill -9 $$")
	if killed.status != 128+9 || len(killed.dirs) != 1 || metadata(t, killed.dirs[0]).Exit.Signal != "SIGKILL" {
		t.Errorf("status %d, runs %v\n%s", killed.status, killed.dirs, killed.stderr)
	}
	mark := filepath.Join(t.TempDir(), "done")
	cmd := command(t, "memory", "record", "--samples", "faults", "-o", t.TempDir(), "--", "sh",
		"-c", "echo ready; read go; : > '"+mark+"'")
	in, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	said, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout = in, say
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	say.Close()
	if _, err := said.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	unix.Kill(cmd.Process.Pid, unix.SIGKILL)
	cmd.Wait()
	write.WriteString("go\n")
	write.Close()
	said.Read(make([]byte, 8)) // until it has ended, and with it the pipe
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the program has not come to its end: %v", err)
	}
}

// TestMemoryRecordOnFullDisk: what there is room for is sealed, or it is reported that nothing is; the program runs to
// its end and its status counts.
func TestMemoryRecordOnFullDisk(t *testing.T) {
	for _, size := range []string{"8k", "24k", "40k", "64k"} {
		disk := smallDisk(t, size)
		o := llamatapIn(t, disk, "memory", "record", "--samples", "faults", "-o", disk, "--", "sh",
			"-c", "echo through")
		if o.stdout != "through\n" && len(everythingBelow(t, disk)) > 0 || o.status == 2 {
			t.Errorf("%s: status %d, %q\n%s", size, o.status, o.stdout, o.stderr)
		}
		sealed := false
		for _, dir := range o.dirs {
			if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err != nil {
				continue
			}
			sealed = true
			rows, _ := traceRows(t, dir)
			if use := samplesOf(t, dir); uint64(len(rows))+use.Lost() != use.Collectors[0].Samples ||
				use.Lossy != (o.status == 3) {
				t.Errorf("%s: %d rows, status %d, %+v", size, len(rows), o.status, use)
			}
		}
		if !sealed && (o.status == 0 || !strings.Contains(o.stderr, "full") && !strings.Contains(o.stderr,
			"no space")) {
			t.Errorf("%s: status %d\n%s", size, o.status, o.stderr)
		}
	}
}
