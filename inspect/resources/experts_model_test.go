package resources

import (
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestAnotherModel: files are compared with what the run knows of its model, by size and by name.
func TestAnotherModel(t *testing.T) {
	files := []*gguf.File{{Tensors: []gguf.Tensor{{Bytes: 64}}}, {Tensors: []gguf.Tensor{{Bytes: 36}}}}
	files[0].Metadata.Set("general.name", "a")
	for _, c := range []struct {
		was  rundir.Model
		want string
	}{
		{rundir.Model{}, ""},
		{rundir.Model{Name: "a", SizeBytes: 100}, ""},
		{rundir.Model{Name: "a", SizeBytes: 64}, "its tensors have 100 bytes, and those of the run's model had 64"},
		{rundir.Model{Name: "b", SizeBytes: 100}, `it is called "a", and the run's model "b"`},
	} {
		if got := anotherModel(files, &c.was); got != c.want {
			t.Errorf("%+v: %q, want %q", c.was, got, c.want)
		}
	}
}
