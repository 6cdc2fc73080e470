//go:build unix

package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/gguf"
)

func TestCheckModel(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	version := append([]byte("GGUF\x09\x00\x00\x00"), llamatap.DefaultModel[8:]...)
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path string
		is         error
		want       string // the remedy
	}{
		{"missing", filepath.Join(dir, "none.gguf"), ErrModel, "check the path"},
		{"folder", dir, ErrModel, "give the GGUF file in it"},
		{"fifo", fifo, ErrModel, "save the model as a file"},
		{"empty", file("empty.gguf", nil), ErrModel, "convert the model"},
		{"text", file("text.gguf", []byte("once upon a time there was no model")), gguf.ErrNotGGUF,
			"convert the model"},
		{"version", file("version.gguf", version), gguf.ErrVersion, "convert the model again"},
		{"cut in the header", file("head.gguf", llamatap.DefaultModel[:1000]), gguf.ErrTruncated,
			"download or copy it again"},
		{"cut in the weights", file("data.gguf", llamatap.DefaultModel[:len(llamatap.DefaultModel)-1000]),
			gguf.ErrTruncated, "download or copy it again"},
		{"path through a file", filepath.Join(file("f", nil), "x"), ErrModel, "not a directory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := CheckModel(test.path)
			if !errors.Is(err, ErrModel) || !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if text := err.Error(); strings.Contains(text, "\n") || strings.Count(text, test.path) != 1 ||
				strings.Count(text, test.want) != 1 {
				t.Errorf("%q is not one line that names the file and the remedy once", text)
			}
		})
	}
	if err := CheckModel(file("good.gguf", llamatap.DefaultModel)); err != nil {
		t.Error(err)
	}
	if err := CheckModel(""); err != nil {
		t.Errorf("embedded: %v", err)
	}
}
