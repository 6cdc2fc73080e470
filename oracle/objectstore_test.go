//go:build linux && llama

package oracle

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// rcloneMain is a program of rclone with the parts that serve a folder as S3.
const rcloneMain = `package main

import (
	_ "github.com/rclone/rclone/backend/local"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/serve"
	_ "github.com/rclone/rclone/cmd/serve/s3"
)

func main() { cmd.Main() }
`

// buildRclone builds it from its Go module.
func buildRclone(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": rcloneMain, "go.mod": "module served\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"get", "github.com/rclone/rclone@v1.76.0"}, {"mod", "tidy"},
		{"build", "-o", "rclone", "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-trimpath", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	return filepath.Join(dir, "rclone")
}

// TestObjectStore copies a recorded run to a real S3 server that is killed in the middle and started again, compares
// what the server has with the run, and reads the run by its URL.
func TestObjectStore(t *testing.T) {
	testenv.Slow(t)
	binary, rclone := testenv.NeedBinary(t), buildRclone(t)
	data, out := t.TempDir(), t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	t.Setenv("AWS_ENDPOINT_URL", "http://"+address)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a secret of this test")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	serve := func() *exec.Cmd {
		server := exec.Command(rclone, "serve", "s3", "--auth-key", "key,a secret of this test",
			"--addr", address, data)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		return server
	}
	run := func(args ...string) (string, error) {
		text, err := exec.Command(binary, args...).CombinedOutput()
		return string(text), err
	}
	if err := os.Mkdir(filepath.Join(data, "runs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if text, err := run("run", "-p", "hello", "-n", "60", "--tap-tensor", "l_out", "--tap-resource-level",
		"MINIMAL", "--tap-kv",
		"--tap-segment", "64K", "--tap-out", out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	dir := rundir.Find(out)[0]
	stored := filepath.Join(data, "runs", "a", filepath.Base(dir))
	url := "s3://runs/a/" + filepath.Base(dir)
	manifest := filepath.Join(stored, rundir.ManifestName)

	// What is in the way of the second segment holds the push in the middle.
	obstacle := filepath.Join(stored, "seg-00002")
	if err := errors.Join(os.MkdirAll(stored, 0o700), os.WriteFile(obstacle, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	server := serve()
	push := exec.Command(binary, "push", dir, "s3://runs/a", "--retry", "10m")
	if err := push.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the first segment", func() bool {
		_, err := os.Stat(filepath.Join(stored, "seg-00001", rundir.ManifestName))
		return err == nil
	})
	server.Process.Kill()
	server.Wait()
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(manifest); err == nil {
		t.Error("the manifest came before the files")
	}
	if text, err := run("inspect", url); err == nil {
		t.Errorf("a run without its server was read: %s", text)
	}
	server = serve()
	defer server.Wait()
	defer server.Process.Kill()
	if err := push.Wait(); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("diff", "-r", dir, stored).CombinedOutput(); err != nil {
		t.Errorf("what the server has is not the run: %s", text)
	}
	before, _ := os.Stat(manifest)
	if text, err := run("push", dir, "s3://runs/a"); err != nil {
		t.Errorf("pushed again: %v: %s", err, text)
	}
	if after, err := os.Stat(manifest); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Error("the second push has written what was there")
	}
	for _, command := range [][]string{{"inspect"}, {"resource", "summary"}, {"kv"}, {"verify", "--json"}} {
		here, err := run(append(command, dir)...)
		there, err2 := run(append(command, url)...)
		here = strings.ReplaceAll(here, dir, "RUN")
		if i := strings.Index(there, os.Getenv("XDG_CACHE_HOME")); i >= 0 {
			name := filepath.Base(dir)
			there = strings.ReplaceAll(there, there[i:i+strings.Index(there[i:], name)]+name, "RUN")
		}
		if err != nil || err2 != nil || here != there {
			t.Errorf("%v: %v, %v, of the URL:\n%s\nof the directory:\n%s", command, err, err2, there, here)
		}
	}
	t.Chdir(t.TempDir())
	if text, err := run("run", "-p", "hello", "-n", "60", "--tap-tensor", "l_out", "--tap-segment", "64K", "--tap-out",
		"s3://runs/live"); err != nil || strings.Contains(text, "a secret") {
		t.Fatalf("%v: %s", err, text)
	}
	local := rundir.Find("llamatap-runs")[0]
	live := filepath.Join(data, "runs", "live", filepath.Base(filepath.Dir(local)), filepath.Base(local))
	if text, err := exec.Command("diff", "-r", local, live).CombinedOutput(); err != nil {
		t.Errorf("what the server has is not the recorded run: %s", text)
	}
	if text, err := exec.Command("grep", "-r", "a secret of", local).CombinedOutput(); err == nil {
		t.Errorf("the run holds the key: %s", text)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	begin := time.Now()
	if text, err := run("push", dir, "s3://runs/b"); err == nil || !strings.Contains(text, "check AWS_ACCESS_KEY_ID") {
		t.Errorf("wrong key: %v: %s after %v", err, text, time.Since(begin))
	}
}
