package rundir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// failCall lets call number n of the disk go wrong until the test's end, and reports by hit whether there was one. Of
// what is to be written a half gets there.
func failCall(t *testing.T, n int, cause error, stays bool) (hit *bool) {
	t.Helper()
	real, calls := disk, 0
	t.Cleanup(func() { disk = real })
	hit = new(bool)
	fails := func() bool {
		calls++
		*hit = *hit || calls == n
		return calls == n || stays && calls > n
	}
	disk.write = func(f *os.File, p []byte) (int, error) {
		if fails() {
			written, _ := real.write(f, p[:len(p)/2])
			return written, &os.PathError{Op: "write", Path: f.Name(), Err: cause}
		}
		return real.write(f, p)
	}
	disk.sync = func(f *os.File) error {
		if fails() {
			return &os.PathError{Op: "sync", Path: f.Name(), Err: cause}
		}
		return real.sync(f)
	}
	disk.rename = func(from, to string) error {
		if fails() {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: cause}
		}
		return real.rename(from, to)
	}
	return hit
}

// recordAll makes everything that a run directory holds, up to the first error.
func recordAll(d *Dir, checkpoint string) error {
	for _, step := range []func() error{
		func() error {
			f, err := d.Create("a.bin")
			if err != nil {
				return err
			}
			f.Write([]byte("some"))
			f.Write([]byte("thing")) // Close returns the error
			return f.Close()
		},
		func() error {
			return (&Checkpoint{TotalTokens: 2, Run: CheckpointRun{Dir: d.Path()}}).Write(checkpoint)
		},
		func() error { return writeTokens(d) },
		func() error { return d.WriteJSON(MetadataName, Metadata{Version: MetadataVersion}) },
		d.Seal,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func writeTokens(d *Dir) error {
	w, err := NewTokensWriter(d)
	if err != nil {
		return err
	}
	defer w.Discard()
	for i := range 60 { // more than a buffer
		if err := w.Append(TokenRecord{Index: int64(i), ID: int32(i), Text: "text", Phase: "decode"}); err != nil {
			return err
		}
	}
	return w.Close(0)
}

// TestFailpoints lets every write, sync and rename of a run directory go wrong, one after the other, in every way.
// It is reported, with the cause; the run is no result then, nothing half is left under a name, and the checkpoint is
// one of the two, whole. When the disk is well again, the run can be made whole.
func TestFailpoints(t *testing.T) {
	causes := []error{syscall.ENOSPC, syscall.EIO, syscall.EINTR, io.ErrShortWrite}
	for _, cause := range testenv.Brief(causes, 1) {
		for _, stays := range []bool{false, true} {
			n := 1
			for hit := true; hit; n++ {
				t.Run(fmt.Sprintf("%v at call %d, stays %v", cause, n, stays), func(t *testing.T) {
					hit = failAt(t, n, cause, stays)
				})
			}
			if n < 20 {
				t.Errorf("%v: only %d calls went wrong", cause, n-2)
			}
		}
	}
}

func failAt(t *testing.T, n int, cause error, stays bool) bool {
	d := create(t)
	checkpoint := filepath.Join(d.Path(), "a.stream"+CheckpointSuffix)
	if err := (&Checkpoint{TotalTokens: 1, Run: CheckpointRun{Dir: d.Path()}}).Write(checkpoint); err != nil {
		t.Fatal(err)
	}
	well := disk
	hit := failCall(t, n, cause, stays)
	err := recordAll(d, checkpoint)
	disk = well
	if *hit != (err != nil) || err != nil && !errors.Is(err, cause) {
		t.Fatalf("it went wrong: %v; reported: %v", *hit, err)
	}
	if r, verr := Verify(d.Path()); verr != nil || r.Sealed != (err == nil) || err == nil &&
		len(r.Missing)+len(r.Changed) > 0 {
		t.Errorf("%+v, %v, after %v", r, verr, err)
	}
	if c, cerr := ReadCheckpoint(checkpoint); cerr != nil || c.TotalTokens != 1 && c.TotalTokens != 2 {
		t.Errorf("the checkpoint is %+v, %v", c, cerr)
	}
	entries, _ := os.ReadDir(d.Path())
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, ".") {
			t.Errorf("%s is left", name)
		}
	}
	if err == nil {
		return *hit
	}
	if err := d.Seal(); err != nil { // the disk is well again
		t.Errorf("sealed later: %v", err)
	}
	if r, err := Verify(d.Path()); err != nil || !r.Sealed || len(r.Missing)+len(r.Changed) > 0 {
		t.Errorf("sealed later: %+v, %v", r, err)
	}
	return *hit
}
