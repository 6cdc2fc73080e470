package memory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPicture: every type that was accessed is there with its bytes; a trace without bytes has no picture.
func TestPicture(t *testing.T) {
	r := &Report{Path: "runs/run_1", EndUnixNS: 2e9, Types: []Type{{Type: "code"}}}
	if r.Picture() != nil {
		t.Error("a picture of nothing")
	}
	r.Types = append(r.Types, Type{Type: "weight", Figures: Figures{Source: Computed, BytesRead: 3 << 30}},
		Type{Type: "kv_cache", Figures: Figures{Source: Computed, BytesRead: 5 << 20, BytesWritten: 7 << 10}})
	path := filepath.Join(t.TempDir(), "memory.svg")
	if err := r.Picture().Save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	for _, want := range []string{"Bytes read and written by type of memory in 2.00 s", "weight (computed)",
		"kv_cache (computed)", "3.00 GiB", "5.00 MiB", "7.00 KiB", ">read<", ">written<", "run_1"} {
		if err != nil || strings.Count(string(text), want) != 1 {
			t.Errorf("%q is not there once, %v", want, err)
		}
	}
	if strings.Contains(string(text), "code") {
		t.Error("a type that was not accessed is drawn")
	}
}
