//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/inspect/tensors"
)

// TestExport records every node of a run, and finds in an export the bytes that cat writes of each tensor.
func TestExport(t *testing.T) {
	dir := llamatap(t, slices.Concat([]string{"run", "--tap-tensors", "*"}, generate(6))...).good(t).dirs[0]
	llamatap(t, "export", dir, "--to", "npy").good(t)
	llamatap(t, "export", dir, "--to", "dataset", "--tensor", "l_out", "--layer", "0-2").good(t)
	if v := verifyJSON(t, dir); !v.OK {
		t.Errorf("%+v", v.Findings)
	}
	folder := filepath.Join(dir, "derived", "npy")
	text, err := os.ReadFile(filepath.Join(folder, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Arrays []struct {
			Name, Tensor, File string
		}
	}
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	run, err := tensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	compared := 0
	for _, a := range index.Arrays {
		got, err := os.ReadFile(filepath.Join(folder, a.File))
		if err != nil {
			t.Fatal(err)
		}
		slice, err := tensors.NewSlice(run, tensors.SliceOptions{Tensor: a.Tensor})
		if err != nil { // rows of several shapes
			continue
		}
		var want bytes.Buffer
		if err := slice.WriteNPY(&want); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s: %d bytes are not the %d of cat", a.Name, len(got), want.Len())
		}
		compared++
	}
	if compared < 100 || compared < len(index.Arrays)*3/4 {
		t.Errorf("%d of %d arrays were compared", compared, len(index.Arrays))
	}
}
