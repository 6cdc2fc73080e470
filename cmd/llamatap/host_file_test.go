//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestLineFileOnAFullDisk: on a disk that gets full a file keeps whole lines, and the error says what to do.
func TestLineFileOnAFullDisk(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		testenv.Beyond(t, "a tmpfs of its own", err.Error())
	}
	defer unix.Unmount(dir, 0)
	path := filepath.Join(dir, "lines.jsonl")
	f, err := appendLines(path, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte("x"), 998), '.')
	n := 0
	for ; n < 1000; n++ {
		if err = f.Append(line); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || !bytes.Contains([]byte(err.Error()), []byte("--output")) {
		t.Fatalf("after %d lines: %v", n, err)
	}
	text, err := os.ReadFile(path)
	if err != nil || n == 0 || len(text) != n*1000 || !bytes.HasSuffix(text, []byte(".\n")) {
		t.Errorf("%d bytes after %d lines, %v", len(text), n, err)
	}
	if err := f.Close(); err == nil {
		t.Error("what is held found room")
	}
}

// TestLineFileOfNoFile: what cannot be appended to says so with a remedy, and a device is taken as it is.
func TestLineFileOfNoFile(t *testing.T) {
	if _, err := appendLines(t.TempDir(), 0, false); err == nil ||
		!bytes.Contains([]byte(err.Error()), []byte("--no-output")) {
		t.Errorf("a folder: %v", err)
	}
	f, err := appendLines("/dev/null", 1, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Append([]byte("{}")), f.Close()); err != nil {
		t.Error(err)
	}
}
