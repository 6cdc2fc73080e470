package tensors

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"golang.org/x/sys/unix"
)

// TestHostileFiles puts what is no file, or far too large a one, under each name of a sealed run. Verify reports it
// as damage, and every reader returns, in bounded memory.
func TestHostileFiles(t *testing.T) {
	hostile := map[string]func(path string) error{
		"fifo":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"zero":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"sparse": func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 300<<20)
		},
	}
	index := rundir.StreamName + stream.IndexSuffix
	for _, name := range []string{rundir.ManifestName, rundir.MetadataName, rundir.TokensName, rundir.StreamName,
		index} {
		for kind, put := range hostile {
			t.Run(kind+" as "+name, func(t *testing.T) {
				f := fixture{}
				dir := f.build(t)
				path := filepath.Join(dir, name)
				check(t, os.Remove(path))
				check(t, put(path))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				done := make(chan struct{})
				go func() {
					defer close(done)
					readHostile(t, dir)
				}()
				select {
				case <-done:
				case <-time.After(5 * time.Minute):
					t.Fatal("a reader hangs")
				}
				if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 192<<20 {
					t.Errorf("it takes %d MiB", (after.TotalAlloc-before.TotalAlloc)>>20)
				}
			})
		}
	}
}

func readHostile(t *testing.T, dir string) {
	if v, err := Verify(dir); err == nil && v.OK {
		t.Errorf("verify finds nothing: %+v", v)
	}
	r, err := Open(dir)
	if err != nil {
		return
	}
	defer r.Close()
	_, _ = r.EachToken(func(*Token) error { return nil })
	_, _ = Summarize(r, Filter{})
	if s, err := NewSlice(r, SliceOptions{Tensor: "l_out-0"}); err == nil {
		_ = s.WriteText(io.Discard)
	}
}
