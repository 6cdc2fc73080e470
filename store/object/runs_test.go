package object

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

// TestRuns finds runs of a bucket, of a folder and of their own place, newest first, and reads no more of them than
// their metadata.
func TestRuns(t *testing.T) {
	s, b := place(t, "bkt")
	run := sealed(t)
	run2 := spooled(t, s.Below("out").Below("model"))
	out := s.Below("out")
	for _, to := range []*Store{s.Below("copy"), out.Below("model").Below("run_1"), out.Below("model").
		Below(filepath.Base(run2))} {
		from := run
		if strings.HasSuffix(to.String(), filepath.Base(run2)) {
			from = run2
		}
		if err := to.Push(t.Context(), from); err != nil {
			t.Fatal(err)
		}
	}
	b.objects["out/run_0/resource.jsonl"] = []byte("{}") // is being copied
	for url, want := range map[string]string{
		"bkt":                 "run_0 copy",
		"bkt/out":             filepath.Base(run2) + " run_1 run_0",
		"bkt/out/model":       filepath.Base(run2) + " run_1",
		"bkt/out/model/run_1": "run_1",
		"bkt/nothing":         "",
	} {
		at, err := Open("s3://" + url)
		if err != nil {
			t.Fatal(err)
		}
		found, err := at.Runs(t.Context())
		var names []string
		for _, f := range found {
			names = append(names, f.String()[strings.LastIndexByte(f.String(), '/')+1:])
		}
		if got := strings.Join(names, " "); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", url, got, err, want)
		}
	}
	at := out.Below("model").Below(filepath.Base(run2))
	var read []string
	b.spoil = func(key string) string { read = append(read, key); return "" }
	files, m, err := at.Contents(t.Context())
	if err != nil || len(files) != 6 || m == nil || m.RunID != filepath.Base(run2) || len(read) > 5 {
		t.Errorf("%v, %+v, %v after %q", files, m, err, read)
	}
	if files, m, err := out.Below("run_0").Contents(t.Context()); err != nil || len(files) != 1 || m != nil {
		t.Errorf("of a run that is being copied: %v, %v, %v", files, m, err)
	}
	b.objects[at.prefix+"/"+rundir.MetadataName][3] ^= 1
	if _, _, err := at.Contents(t.Context()); !errors.Is(err, rundir.ErrChanged) {
		t.Errorf("%v, want ErrChanged", err)
	}
}
