//go:build linux

package session

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/gguf"
)

// TestVectorFile: a vector that is named relative to the working folder has an absolute path in the metadata.
func TestVectorFile(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	var file bytes.Buffer
	v := gguf.ControlVector{Layers: 2, Directions: map[int][]float32{1: {3, 4}}}
	if err := v.Write(&file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("v.gguf", file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := openVector(config.Steer{File: "v.gguf", Scale: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if got.File != filepath.Join(folder, "v.gguf") || got.rows[1][1] != 2 {
		t.Errorf("file %s, rows %v", got.File, got.rows)
	}
}
