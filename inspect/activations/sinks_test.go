package activations

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// TestSinks plants a sink: of two heads, the first gives token 0 a logit of 5 and all others 0, the second attends
// evenly.
func TestSinks(t *testing.T) {
	const n, logit = 40, 5.0
	d, err := rundir.Create(t.TempDir(), "sinks", time.Unix(1_790_000_000, 0))
	check(t, err)
	w, err := stream.Create(filepath.Join(d.Path(), rundir.StreamName), stream.Options{Workers: 1})
	check(t, err)
	put := func(name string, ggmlType int, ne [4]int64, data []byte) {
		check(t, w.Append(&stream.Packet{Name: name, Node: name, Op: "ROPE", Occurrence: 1, Layer: 3, Exec: 1, NE: ne,
			Phase: label.PhasePrefill, TokenCount: n, SrcType: ggmlType}, data, func() {}))
	}
	floats := func(of func(i int) float64, count int) (data []byte) {
		for i := range count {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(of(i))))
		}
		return data
	}
	put("mask", 0, [4]int64{n, n, 1, 1}, floats(func(i int) float64 {
		if i%n > i/n {
			return math.Inf(-1)
		}
		return 0
	}, n*n))
	var cells []byte
	for i := range n {
		cells = binary.LittleEndian.AppendUint64(cells, uint64(i))
	}
	put("cells", 27, [4]int64{n, 1, 1, 1}, cells)
	put("K", 0, [4]int64{1, n, 1, 1}, floats(func(i int) float64 {
		if i == 0 {
			return logit
		}
		return 0
	}, n))
	put("Q", 0, [4]int64{1, 2, n, 1}, floats(func(i int) float64 { return float64(1 - i%2) }, 2*n))
	check(t, w.Close())
	check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion, Losses: []rundir.Loss{},
		Extra: map[string]json.RawMessage{"attention": json.RawMessage(
			`[{"layer":3,"q":"Q","k":"K","cells":"cells","mask":"mask","n_head_kv":1,"head_dim":1,"scale":1},
			{"layer":4,"map":"soft"}]`)}}))
	r, err := tensors.Open(d.Path())
	check(t, err)
	defer r.Close()
	s, err := findSinks(context.Background(), r, Options{End: math.MaxInt64})
	check(t, err)
	first, even := 0.0, 0.0 // mean weights of token 0 from tokens 1 to n-1
	for i := 1; i < n; i++ {
		first += math.Exp(logit) / (math.Exp(logit) + float64(i)) / (n - 1)
		even += 1 / float64(i+1) / (n - 1)
	}
	if len(s.Found) != 1 || s.Found[0].Token != 0 || s.Found[0].Later != n-1 || s.Found[0].Heads != 0.5 ||
		math.Abs(s.Found[0].Mean-(first+even)/2) > 1e-6 || s.Tokens != n {
		t.Errorf("%+v, want a mean of %v", s, (first+even)/2)
	}
	if len(s.Layers) != 1 || !strings.Contains(s.Why, "no attention of the chosen tokens") {
		t.Errorf("a layer without its map: %+v", s)
	}
}
