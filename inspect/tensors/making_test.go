package tensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// A sample's elements are found again by their seed, and shown.
func TestSampleShown(t *testing.T) {
	const seed, of, kept = 77, 100, 10
	path := filepath.Join(t.TempDir(), "a.stream")
	w, err := stream.Create(path, stream.Options{Workers: 1, DType: codec.F32})
	check(t, err)
	var want []int64
	for exec := range uint64(2) {
		p := stream.Packet{Name: "ffn_out-1", Exec: exec, NE: [4]int64{of, 1, 1, 1}, SampleSeed: seed + exec,
			SampleTotal: of}
		indices := label.SampleIndices(nil, seed+exec, of, kept)
		var data []byte
		for _, i := range indices {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
		}
		check(t, w.Append(&p, data, nil))
		want = append(want, indices...)
	}
	check(t, w.Close())
	var shown struct {
		Codecs []string
		Sample []Sample
		Values [][]int64
	}
	jsonOf(t, path, "ffn_out-1", &shown)
	var indices, values []int64
	for i, s := range shown.Sample {
		if s.Seed != seed+uint64(i) || s.Of != of {
			t.Errorf("sample %d: %+v", i, s)
		}
		indices, values = append(indices, s.Indices...), append(values, shown.Values[i]...)
	}
	if !slices.Equal(indices, want) || !slices.Equal(values, want) || len(shown.Sample) != 2 {
		t.Errorf("indices %v of values %v, want %v", indices, values, want)
	}
	if text := textOf(t, path, "ffn_out-1"); !strings.Contains(text, "10 of 100 elements") {
		t.Errorf("%s", text)
	}
}

// The error that a bounded codec made is shown per tensor and in all, and it is the one that was made.
func TestErrorShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.stream")
	w, err := stream.Create(path, stream.Options{Workers: 1, Codec: codec.Q, Bound: codec.Bound{Error: 1e-2}})
	check(t, err)
	for i, name := range []string{"l_out-0", "l_out-1"} {
		var data []byte
		for k := range 64 {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(k*k%37)+0.5*float32(i)))
		}
		check(t, w.Append(&stream.Packet{Name: name, NE: [4]int64{64, 1, 1, 1}}, data, nil))
	}
	check(t, w.Close())
	worst := w.Stats().Error
	run, err := Open(path)
	check(t, err)
	defer run.Close()
	s, err := Summarize(run, Filter{})
	check(t, err)
	if worst.MaxAbs <= 0 || worst.MaxAbs > 1e-2 || s.Error != worst ||
		s.Layers[0].Tensors[0].Error.Or(s.Layers[0].Tensors[1].Error) != worst {
		t.Errorf("the writer made %+v, the summary says %+v", worst, s.Error)
	}
	var text bytes.Buffer
	check(t, s.WriteText(&text))
	if !strings.Contains(text.String(), "\nerror     at most 0.0") {
		t.Errorf("%s", text.String())
	}
	var shown struct{ Error codec.Achieved }
	jsonOf(t, path, "l_out-1", &shown)
	if shown.Error != s.Layers[0].Tensors[1].Error || shown.Error.NRMSE <= 0 {
		t.Errorf("cat says %+v", shown.Error)
	}
	if text := textOf(t, path, "l_out-1"); !strings.Contains(text, "q: error at most 0.0") {
		t.Errorf("%s", text)
	}
}

func sliceOf(t *testing.T, path, tensor string, write func(*Slice) error) {
	t.Helper()
	run, err := Open(path)
	check(t, err)
	defer run.Close()
	s, err := NewSlice(run, SliceOptions{Tensor: tensor})
	check(t, err)
	check(t, write(s))
}

func jsonOf(t *testing.T, path, tensor string, v any) {
	t.Helper()
	sliceOf(t, path, tensor, func(s *Slice) error {
		var b bytes.Buffer
		check(t, s.WriteJSON(&b))
		return json.Unmarshal(b.Bytes(), v)
	})
}

func textOf(t *testing.T, path, tensor string) string {
	t.Helper()
	var b strings.Builder
	sliceOf(t, path, tensor, func(s *Slice) error { return s.WriteText(&b) })
	return b.String()
}
