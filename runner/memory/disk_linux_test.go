package memory

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
)

// fullDisk is a folder on a file system that has no room, and what gives it some.
func fullDisk(t *testing.T) (dir string, free func()) {
	t.Helper()
	testenv.NeedRoot(t)
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		testenv.Beyond(t, "a tmpfs of its own", err.Error())
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := os.Truncate(fill, 252<<10); err != nil { // a page, for folders
		t.Fatal(err)
	}
	return dir, func() { os.Remove(fill) }
}

// TestRecordOnFullDisk: a program runs to its end though nothing can be written, its status is known, and each
// error is a line with a remedy.
func TestRecordOnFullDisk(t *testing.T) {
	dir, free := fullDisk(t)
	var warnings []string
	result, err := Record(context.Background(), Options{Choices: [][]string{{"faults"}},
		Command: exec.Command("sh", "-c", "exit 5"), Out: dir,
		Warn: func(err error) { warnings = append(warnings, err.Error()) }})
	if !errors.Is(err, ErrDisk) {
		allowed(t, err)
		t.Fatalf("a recording on a full disk: %v", err)
	}
	<-result.Ended
	if result.Exit().ExitCode() != 5 || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "llamatap verify --repair "+result.Dir) {
		t.Errorf("%v, %v", result.Exit(), err)
	}
	if all := strings.Join(warnings, "\n"); !strings.Contains(all,
		"is full; free room there, or choose another folder with -o") {
		t.Errorf("warnings %q", all)
	}
	free()
	if _, err := os.Stat(filepath.Join(result.Dir, "manifest.json")); err == nil {
		t.Error("it is sealed")
	}
}

// TestRecordOfShortPages checks that nothing is recorded of a program that ends before the second scan of its pages,
// and that is said.
func TestRecordOfShortPages(t *testing.T) {
	object := filepath.Join(t.TempDir(), "written.so")
	tool(t, testenv.NeedCC(t), "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", object,
		filepath.Join(testenv.Root(t), "cgo", "tap", "tap_written.c"))
	result, err := Record(context.Background(), Options{Choices: [][]string{{"pages"}}, Command: exec.Command("true"),
		Out: t.TempDir(), Tap: object})
	allowed(t, err)
	<-result.Ended
	if missing := strings.Join(result.Use.Missing, "; "); !strings.Contains(missing, "had ended before") ||
		!result.Use.Lossy {
		t.Errorf("missing %q, lossy %v", missing, result.Use.Lossy)
	}
}
