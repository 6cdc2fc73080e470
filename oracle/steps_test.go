//go:build linux

package oracle

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestModelAndTensors: what events say of the model is what its file says: sizes, and every weight that is read,
// with shape and type; and what attention computes without masked cells is what positions say.
func TestModelAndTensors(t *testing.T) {
	file, err := gguf.Open(testenv.Model(t))
	if err != nil {
		t.Fatal(err)
	}
	run := llamatap(t, "llama-completion", "--tap-resource-level", "VERBOSE", "-m", testenv.Model(t), "-p", prompt,
		"-n", "4", "--temp", "0", "-t", "1", "-c", "256", "-ub", "16", "-no-cnv",
		"--no-warmup").good(t)
	text, err := os.ReadFile(filepath.Join(run.dirs[0], "resource.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	roles, steps, models := map[string]int{}, 0, 0
	for line := range bytes.Lines(text) {
		event, err := resource.Decode(line)
		if err != nil {
			t.Fatal(err)
		}
		switch e := event.(type) {
		case *resource.Model:
			models++
			trained, _ := file.Metadata.Int("llama.context_length")
			embd, _ := file.Metadata.Int("llama.embedding_length")
			layers, _ := file.Metadata.Int("llama.block_count")
			if m := e.Model; m.NCtxTrain != int(trained) || m.NEmbd != int(embd) || m.NLayer != int(layers) ||
				m.NParams != uint64(file.Parameters()) || e.Context.NCtx != 256 || e.Context.NUBatch != 16 {
				t.Errorf("%+v", e)
			}
			if m := e.Memory; m.ModelSizeBytes != uint64(file.TensorBytes()) || m.WeightsBytes < m.ModelSizeBytes ||
				m.ComputeBytes == 0 || m.OtherBytes < 12*256*128*2 {
				t.Errorf("%+v", m)
			}
		case *resource.TensorInfo:
			roles[e.Role]++
			if e.Role != "weight" {
				continue
			}
			w, ok := file.Tensor(e.Metadata.Name)
			if !ok || !slices.Equal(w.Shape, e.Metadata.Shape) || w.Type.String() != e.Metadata.DType ||
				w.Bytes != *e.Metadata.MemoryBytes || w.Values() != e.Metadata.ElementCount {
				t.Errorf("%+v, in the file it is %+v", e, w)
			}
		case *resource.Graph:
			// 6 layers of 4 heads of 64 values; 256 cells, of which the token at position p may read p+1
			masked := int64(0)
			for i := range int64(e.Tokens) {
				masked += 256 - (*e.TokenFirst + i + 1)
			}
			if e.FLOPsUnmasked == nil || *e.FLOPs-*e.FLOPsUnmasked != 6*4*masked*(2*64+2*64+1+4+2) {
				t.Errorf("%s", line)
			}
		case *resource.StepEnd:
			steps++
			if *e.DurationMS <= 0 || e.Metrics.Tokens == 0 {
				t.Errorf("%+v", e)
			}
		}
	}
	if models != 1 || steps < 4 || roles["weight"] != len(file.Tensors) || roles["cache"] != 12 || roles["input"] < 4 ||
		roles["result"] < 100 {
		t.Errorf("%d models, %d steps, tensors %v", models, steps, roles)
	}
}
