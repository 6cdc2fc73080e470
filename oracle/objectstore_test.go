//go:build linux && llama

package oracle

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestObjectStore copies a recorded run to a real S3 server that is killed in the middle and started again, compares
// what the server has with the run, and reads the run by its URL.
func TestObjectStore(t *testing.T) {
	testenv.Slow(t)
	binary, server, out := testenv.NeedBinary(t), newS3Server(t), t.TempDir()
	run := func(args ...string) (string, error) {
		text, err := exec.Command(binary, args...).CombinedOutput()
		return string(text), err
	}
	if text, err := run("run", "-p", "hello", "-n", "60", "--tap-tensor", "l_out", "--tap-resource-level",
		"MINIMAL", "--tap-kv",
		"--tap-segment", "64K", "--tap-out", out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	dir := rundir.Find(out)[0]
	stored := filepath.Join(server.bucket, "a", filepath.Base(dir))
	url := "s3://runs/a/" + filepath.Base(dir)
	manifest := filepath.Join(stored, rundir.ManifestName)

	random := rand.New(rand.NewPCG(7, 8))
	for i := range 6 {
		randomRun(random, i%2, i/2, memory.Clean).Write(t, filepath.Join(server.bucket, "results"))
	}

	// What is in the way of the second segment holds the push in the middle.
	obstacle := filepath.Join(stored, "seg-00002")
	if err := errors.Join(os.MkdirAll(stored, 0o700), os.WriteFile(obstacle, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	server.start(t)
	push := exec.Command(binary, "push", dir, "s3://runs/a", "--retry", "10m")
	if err := push.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the first segment", func() bool {
		_, err := os.Stat(filepath.Join(stored, "seg-00001", rundir.ManifestName))
		return err == nil
	})
	server.kill()
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(manifest); err == nil {
		t.Error("the manifest came before the files")
	}
	if text, err := run("inspect", url); err == nil {
		t.Errorf("a run without its server was read: %s", text)
	}
	server.start(t)
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
		if i := strings.Index(there, server.cache); i >= 0 {
			name := filepath.Base(dir)
			there = strings.ReplaceAll(there, there[i:i+strings.Index(there[i:], name)]+name, "RUN")
		}
		if err != nil || err2 != nil || here != there {
			t.Errorf("%v: %v, %v, of the URL:\n%s\nof the directory:\n%s", command, err, err2, there, here)
		}
	}
	serveStored(t, filepath.Join(server.bucket, "a"), "s3://runs/a", filepath.Base(dir))
	t.Chdir(t.TempDir())
	if text, err := run("run", "-p", "hello", "-n", "60", "--tap-tensor", "l_out", "--tap-segment", "64K", "--tap-out",
		"s3://runs/live"); err != nil || strings.Contains(text, s3Secret) {
		t.Fatalf("%v: %s", err, text)
	}
	local := rundir.Find("llamatap-runs")[0]
	live := filepath.Join(server.bucket, "live", filepath.Base(filepath.Dir(local)), filepath.Base(local))
	if text, err := exec.Command("diff", "-r", local, live).CombinedOutput(); err != nil {
		t.Errorf("what the server has is not the recorded run: %s", text)
	}
	if text, err := exec.Command("grep", "-r", s3Secret, local).CombinedOutput(); err == nil {
		t.Errorf("the run holds the key: %s", text)
	}
	for _, format := range []string{"text", "csv", "json"} {
		here, err := run("mrm", "aggregate", filepath.Join(server.bucket, "results"), "--format", format)
		there, err2 := run("mrm", "aggregate", "s3://runs/results", "--format", format)
		if err != nil || err2 != nil || !strings.Contains(here, "key-1") && format != "text" || here != there {
			t.Errorf("aggregate: %v, %v, of the URL:\n%s\nof the folder:\n%s", err, err2, there, here)
		}
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	begin := time.Now()
	if text, err := run("push", dir, "s3://runs/b"); err == nil || !strings.Contains(text, "check AWS_ACCESS_KEY_ID") {
		t.Errorf("wrong key: %v: %s after %v", err, text, time.Since(begin))
	}
}

// serveStored compares what a server shows of runs in object storage with what one shows of their folder. A run is
// copied when it is looked at.
func serveStored(t *testing.T, folder, url, id string) {
	t.Helper()
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	copies := func() int {
		found, _ := filepath.Glob(filepath.Join(cache, "llamatap", "runs", "*"))
		return len(found)
	}
	here, there := show(t, folder), show(t, url)
	for _, path := range []string{"/api/v1/runs", "/api/v1/summary?run=" + id, "/api/v1/kv?run=" + id,
		"/api/v1/resource-logs?run=" + id, "/api/v1/summary"} {
		a, b := here.ask(t, "GET", path, ""), there.ask(t, "GET", path, "")
		a = strings.ReplaceAll(a, folder, "FOLDER")
		if i := strings.Index(b, cache); i >= 0 {
			b = strings.ReplaceAll(b, filepath.Dir(b[i:i+strings.Index(b[i:], id)]+id), "FOLDER")
		}
		if n := copies(); (n == 0) != (path == "/api/v1/runs") || n > 1 {
			t.Errorf("%s: %d runs are copied", path, n)
		}
		if a != b {
			t.Errorf("%s: of the URL\n%.2000s\nof the folder\n%.2000s", path, b, a)
		}
	}
	for _, s := range []*showing{&here, &there} {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}
}
