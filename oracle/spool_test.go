//go:build linux && llama

package oracle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// spoolBound is the bound of a spool, and spoolTokens how many tokens of an answer fill a small part of it.
const (
	spoolBound  = 4 << 20
	spoolTokens = 3
)

// spool is a llama-server whose recording goes to an S3 server through a bounded folder.
type spool struct {
	*server
	s3      *s3Server
	log     string // what the programs say on standard error
	prompts [][]int32
	answers []completionAnswer
}

func newSpool(t *testing.T) *spool {
	t.Helper()
	s := &spool{s3: newS3Server(t)}
	s.s3.start(t)
	folder := t.TempDir() // the run is recorded below it
	s.log = filepath.Join(folder, "stderr")
	s.server = serveBy(t, filepath.Join(folder, "llamatap-runs"), "sh", "-c", `cd "$0" && exec "$@" 2> stderr`, folder,
		testenv.NeedBinary(t), "exec", "--tap-tensors", "l_out*", "--tap-codec", "none", "--tap-resource-level",
		"MINIMAL",
		"--tap-max-disk", "4M:rotate", "--tap-segment", "64K", "--tap-out", "s3://runs/live", "--", "llama-server",
		"-np", "1", "-c", "1024", "-t", "1", "--no-webui")
	return s
}

// next asks for one more completion, and looks at the size of the spool.
func (s *spool) next(t *testing.T) {
	t.Helper()
	q := question{prompt: fmt.Sprintf("package p%d\n", len(s.answers)), n: spoolTokens}
	s.prompts = append(s.prompts, s.tokenize(t, q.prompt))
	s.answers = append(s.answers, s.ask(t, q))
	if n := bytesBelow(s.out); n > spoolBound {
		t.Errorf("the spool has %d bytes, its bound is %d", n, spoolBound)
	}
}

// dir is the directory of the run, stored the one that the S3 server keeps of it, url its URL.
func (s *spool) dir(t *testing.T) string {
	t.Helper()
	dirs := runDirs(t, s.out)
	if len(dirs) != 1 {
		t.Fatalf("runs: %v", dirs)
	}
	return dirs[0]
}

func (s *spool) place(t *testing.T) string {
	dir := s.dir(t)
	return filepath.Join("live", filepath.Base(filepath.Dir(dir)), filepath.Base(dir))
}

func (s *spool) stored(t *testing.T) string { return filepath.Join(s.s3.bucket, s.place(t)) }

func (s *spool) url(t *testing.T) string { return "s3://runs/" + s.place(t) }

// uncopied lists the sealed segments and whole parts of events that the S3 server does not have.
func (s *spool) uncopied(t *testing.T) (names []string) {
	t.Helper()
	sealed, err := filepath.Glob(filepath.Join(s.dir(t), "seg-*", rundir.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	logs, _ := filepath.Glob(filepath.Join(s.dir(t), "resource*.jsonl"))
	slices.SortFunc(logs, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	for _, path := range append(sealed, logs[:max(0, len(logs)-1)]...) { // the newest part is written
		name, _ := filepath.Rel(s.dir(t), path)
		if _, err := os.Stat(filepath.Join(s.stored(t), name)); err != nil {
			names = append(names, name)
		}
	}
	return names
}

// fill asks until something of each kind was moved, and waits after each answer until what is whole was copied.
func (s *spool) fill(t *testing.T) {
	t.Helper()
	for range 200 {
		s.next(t)
		ctl(t, s.dir(t), "flush")
		testenv.Until(t, "what is whole is copied", func() bool { return len(s.uncopied(t)) == 0 })
		moved := metadata(t, s.dir(t)).Moved
		if moved.Has(rundir.SegmentName(3)+"/"+rundir.ManifestName) && moved.Has("resource.2.jsonl") {
			return
		}
	}
	t.Fatalf("nothing is moved to object storage: %s", content(t, s.log))
}

// fetched is the copy of the run that reading its URL makes.
func (s *spool) fetched(t *testing.T) (dir string, v verified) {
	t.Helper()
	text := llamatap(t, "verify", "--json", s.url(t)).stdout
	var at struct{ Path string }
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return at.Path, verifyJSON(t, at.Path)
}

// wantAnswers demands the tokens of all answers, or of the first ones, in a run.
func (s *spool) wantAnswers(t *testing.T, dir string, whole bool) {
	t.Helper()
	ids, _ := segmentTokens(t, dir)
	for i := range s.answers {
		got, want := ids[request{seq: 0, number: int32(i)}], decoded(s.prompts[i], s.answers[i])
		if !whole && len(got) < len(want) {
			return
		}
		wantIDs(t, fmt.Sprintf("request %d", i), got, want)
	}
}

// TestSpool records more than its bound holds to a real S3 server that is killed meanwhile and started again: the spool
// keeps within its bound, what an outage held back is copied while the recording goes on, and the S3 server has all of
// it. The local directory is what is left, and says so. Other commands read the URL.
func TestSpool(t *testing.T) {
	testenv.Slow(t)
	s := newSpool(t)
	s.fill(t)
	s.s3.kill()
	for len(s.uncopied(t)) == 0 {
		s.next(t)
	}
	s.s3.start(t)
	testenv.Until(t, "the recording copies after the outage", func() bool { return len(s.uncopied(t)) == 0 })
	s.next(t)
	s.stop()
	dir := s.dir(t)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 ||
		!bytes.Contains(content(t, s.log), []byte("copied    to "+s.url(t))) {
		t.Fatalf("status %d: %s", code, content(t, s.log))
	}
	for _, name := range []string{rundir.ManifestName, rundir.MetadataName} {
		if !bytes.Equal(content(t, filepath.Join(dir, name)), content(t, filepath.Join(s.stored(t), name))) {
			t.Errorf("%s of the spool and of the copy differ", name)
		}
	}
	m, here := metadata(t, dir), verifyJSON(t, dir)
	copied, v := s.fetched(t)
	a := m.Account
	if m.Stopped != nil || m.Lossy || m.Rotated != nil || a.Rotated != nil || a.Captured != a.Selected ||
		!v.OK || len(v.Findings) > 0 || uint64(v.Packets) != a.Captured.Packets || m.Moved == nil ||
		m.Moved.To != s.url(t) {
		t.Errorf("account %+v, moved %+v, the copy: %+v", a, m.Moved, v)
	}
	s.wantAnswers(t, copied, true)
	if segments, err := rundir.Segments(copied); err != nil || len(segments) < 4 || len(m.Segments) != len(segments) ||
		m.Segments[0].Number != 1 {
		t.Errorf("%d segments are in the copy, %+v in its metadata: %v", len(segments), m.Segments, err)
	}
	var lines uint64
	logs, _ := filepath.Glob(filepath.Join(copied, "resource*.jsonl"))
	for _, name := range logs {
		lines += uint64(bytes.Count(content(t, name), []byte{'\n'}))
	}
	if lines != a.Events.Written || a.Events.Rotated > 0 {
		t.Errorf("%d events are in the copy, account %+v", lines, a.Events)
	}
	if !here.OK || !slices.Equal(here.kinds(), []string{"note"}) || here.Packets >= v.Packets ||
		!strings.Contains(here.Findings[0].What, m.Moved.To) || bytesBelow(dir) > spoolBound {
		t.Errorf("the spool of %d bytes: %+v", bytesBelow(dir), here)
	}
	if text := llamatap(t, "inspect", dir).good(t).stdout; !strings.Contains(text, "alone") {
		t.Errorf("no word of what was moved: %s", text)
	}
	if text := llamatap(t, "inspect", s.url(t)).good(t).stdout; strings.Contains(text, "alone") {
		t.Errorf("the copy lacks what was moved: %s", text)
	}
	s.readURLs(t, copied)
}

// readURLs compares what commands make of URLs with what they make of the copy.
func (s *spool) readURLs(t *testing.T, copied string) {
	t.Helper()
	export := func(run string) []byte {
		file := filepath.Join(t.TempDir(), "out.safetensors")
		llamatap(t, "export", run, "--to", "safetensors", "-o", file).good(t)
		return content(t, file)
	}
	if here, there := export(copied), export(s.url(t)); len(here) < 1<<16 || len(here) != len(there) {
		t.Errorf("export: %d bytes of the copy, %d of the URL", len(here), len(there))
	}
	shown := show(t, s.url(t))
	if text := shown.ask(t, "GET", "/api/v1/runs", ""); !strings.Contains(text, filepath.Base(copied)) {
		t.Errorf("serve shows %s", text)
	}
	var runs []struct {
		Path, State string
		Tokens      int64
		Bytes       int64
	}
	text := llamatap(t, "runs", "--json", "s3://runs/live").good(t).stdout
	m := metadata(t, copied)
	if err := json.Unmarshal([]byte(text), &runs); err != nil || len(runs) != 1 || runs[0].Path != s.url(t) ||
		runs[0].State != "sealed" || runs[0].Tokens != m.Tokens.Prompt+m.Tokens.Generated ||
		runs[0].Bytes != bytesBelow(s.stored(t)) {
		t.Errorf("%v, %d bytes: %s", err, bytesBelow(s.stored(t)), text)
	}
}

// TestSpoolFull: where the S3 server is away until the spool is full, recording stops, and what it had is copied when
// it ends.
func TestSpoolFull(t *testing.T) {
	testenv.Slow(t)
	s := newSpool(t)
	s.next(t)
	s.s3.kill()
	for !bytes.Contains(content(t, s.log), []byte("is not copied to")) {
		if s.next(t); len(s.answers) > 1000 {
			t.Fatal("a full spool does not end the recording")
		}
	}
	s.s3.start(t)
	s.stop()
	m := metadata(t, s.dir(t))
	copied, v := s.fetched(t)
	if m.Stopped == nil || m.Stopped.Cause != "max_disk" || m.Rotated != nil ||
		m.Account.Captured.Packets != uint64(v.Packets) || len(m.Losses) == 0 || len(m.Account.Violations) > 0 ||
		!slices.Equal(v.kinds(), []string{"loss"}) {
		t.Errorf("stopped %+v, account %+v, %+v\n%s", m.Stopped, m.Account, v, content(t, s.log))
	}
	s.wantAnswers(t, copied, false)
}

// TestSpoolKilled kills a recording that has moved a part of its run, repairs what is left, and pushes it to where the
// rest is: the copy has everything that was sealed, from the first token on. No other place takes it.
func TestSpoolKilled(t *testing.T) {
	testenv.Slow(t)
	s := newSpool(t)
	s.fill(t)
	dir := s.dir(t)
	pids := s.programs(t)
	s.cmd.Process.Kill()
	for _, pid := range pids { // it holds the pipe that the wait reads
		syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.exited
	moved := metadata(t, dir).Moved
	llamatap(t, "verify", "--repair", dir)
	if o := llamatap(t, "push", dir, "s3://runs/elsewhere"); o.status == 0 || !strings.Contains(o.stderr, moved.To) {
		t.Errorf("pushed without what was moved: %d: %s", o.status, o.stderr)
	}
	parent := strings.TrimSuffix(s.url(t), "/"+filepath.Base(dir))
	if text := llamatap(t, "push", dir, parent).good(t).stdout; strings.TrimSpace(text) != s.url(t) {
		t.Errorf("pushed to %s", text)
	}
	here, m := verifyJSON(t, dir), metadata(t, dir)
	copied, v := s.fetched(t)
	for _, f := range moved.Files {
		if _, err := os.Stat(filepath.Join(copied, f.Name)); err != nil {
			t.Error(err)
		}
	}
	if m.Rotated != nil || !v.Sealed || slices.Contains(v.kinds(), "damage") ||
		slices.Contains(here.kinds(), "damage") ||
		v.Packets <= here.Packets {
		t.Errorf("rotated %+v, the copy %+v, what is left %+v", m.Rotated, v, here)
	}
	s.wantAnswers(t, copied, false)
}
