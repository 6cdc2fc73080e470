package oracle

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// asNobody runs a program as a user who owns nothing here, and returns what it prints.
func asNobody(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestPrivate: whatever the umask says, what a run leaves and its control socket belong to its user alone: another can
// neither list nor read it, and cannot connect. The folder that holds the runs is one that anybody may enter.
func TestPrivate(t *testing.T) {
	testenv.NeedRoot(t)
	out, err := os.MkdirTemp("/tmp", "private-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(out) })
	if err := os.Chmod(out, 0o755); err != nil {
		t.Fatal(err)
	}
	line := append([]string{testenv.NeedBinary(t), "run", "--tap-out", out, "--tap-tensors", "l_out", "--tap-kv",
		"--tap-ledger",
		"--tap-resource-level", "DETAILED", "--tap-resource-rate", "2000"}, forever...)
	cmd := exec.Command("sh", append([]string{"-c", `umask 0; exec "$@"`, "sh"}, line...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() })
	takesCommands(t, out)
	sockets, _ := filepath.Glob(filepath.Join(out, "*", "run_*", "control.sock"))
	run := filepath.Dir(sockets[0])
	private(t, out)

	if text, err := asNobody("ls", run); err == nil || !strings.Contains(text, "Permission denied") {
		t.Errorf("another user lists the run: %v, %s", err, text)
	}
	// The folders are opened to all: what is within has to be enough by itself.
	for _, dir := range []string{filepath.Dir(run), run} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"metadata.json", "resource.jsonl"} {
		path := filepath.Join(run, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if text, err := asNobody("cat", path); err == nil || !strings.Contains(text, "Permission denied") {
			t.Errorf("another user reads %s: %v, %.100s", name, err, text)
		}
	}
	const connect = `use IO::Socket::UNIX; IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "$!\n"`
	if text, err := asNobody("perl", "-e", connect, sockets[0]); err == nil || text != "Permission denied\n" {
		t.Errorf("another user connects to the control socket: %v, %s", err, text)
	}
	ctl(t, out, "stop")
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	os.Chmod(filepath.Dir(run), 0o700)
	os.Chmod(run, 0o700)
	private(t, out)
}

// private demands that everything below a folder is its user's alone.
func private(t *testing.T, out string) {
	t.Helper()
	n := 0
	if err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == out {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // renamed meanwhile
		}
		n++
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	}); err != nil || n < 5 {
		t.Errorf("%d files, %v", n, err)
	}
}
