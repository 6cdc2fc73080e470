package rundir

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWriteFile: a file has its mode, and is the old one or the new one.
func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, mode := range []fs.FileMode{0o644, 0o600} {
		text := mode.String()
		err := WriteFile(path, mode, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		broken := errors.New("broken")
		err = WriteFile(path, 0o640, func(w io.Writer) error {
			_, err := io.WriteString(w, "half")
			return errors.Join(err, broken)
		})
		if !errors.Is(err, broken) {
			t.Errorf("a writer that fails: %v", err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != mode {
			t.Errorf("%v, %v, want mode %v", info.Mode(), err, mode)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestFullDisk: the error of a full disk is one line with the file and a remedy, and leaves no file.
func TestFullDisk(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	err := WriteFile(path, 0o600, func(io.Writer) error {
		return &os.PathError{Op: "write", Path: path + ".temporary", Err: syscall.ENOSPC}
	})
	want := "write " + path + ": no space left on device: free space there, or choose another place with -o"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestDraft: a draft is its result when it is published, in the place of an earlier one only where that is asked for,
// and nothing is left of one that is not.
func TestDraft(t *testing.T) {
	folder := t.TempDir()
	final := filepath.Join(folder, "new", "result")
	for i, replace := range []bool{false, false, true} {
		d, err := NewDraft(final)
		if err != nil {
			t.Fatal(err)
		}
		file, err := d.Create(filepath.Join("below", "file"))
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		if err := d.Publish(replace); (err == nil) != (i != 1) {
			t.Errorf("published %d times, replace %v: %v", i, replace, err)
		}
		d.Discard()
		if _, err := os.Stat(filepath.Join(final, "below", "file")); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(filepath.Dir(final)); err != nil || len(left) != 1 {
			t.Errorf("%v, %v", left, err)
		}
	}
	d, err := NewDraft(filepath.Join(folder, "other", "result"))
	if err != nil {
		t.Fatal(err)
	}
	d.Discard()
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
