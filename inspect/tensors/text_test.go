package tensors

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
)

var update = flag.Bool("update", false, "rewrite golden files")

// summaryOfAll is a summary in which every cell has something to show.
func summaryOfAll() *Summary {
	stats := statsOf(0, 1, -2.5, 1e-9, 3e30)
	tensor := Tensor{Name: "l_out-0", Op: "ADD", Component: label.ComponentResidual, DType: "f16", Codec: "lz4",
		Shape: []int64{128, 0},
		Rows:  label.RowsTokens, RowDim: 1, Tokens: 64,
		Totals: Totals{Packets: 52, BytesSource: 32768, BytesRaw: 16384, BytesStored: 15000, Ratio: 1.0923},
		Stats:  &stats}
	long := tensor
	long.Name, long.Ctx, long.Stats = "blk.0.a_very_long_name_"+strings.Repeat("of_a_tensor_", 6)+"-0#12", 1, nil
	output := tensor
	output.Name, output.Layer, output.Component = "result_output", -1, label.ComponentOutput
	return &Summary{
		Path: "llamatap-runs/gopher/run_20260102_030405_abcd", Kind: KindRun, Sealed: true, Model: "gopher 6M",
		Arch:   "llama",
		Totals: Totals{Packets: 156, BytesSource: 98304, BytesRaw: 49152, BytesStored: 45000, Ratio: 1.0923},
		Tokens: 64, TokensByPhase: map[string]int64{"prefill": 12, "decode": 52}, Requests: 3,
		PacketsPerToken: 2.4375, BytesPerToken: 703.125, Lossy: true,
		Losses:    []rundir.Loss{{Cause: "pool full", Packets: 3, Bytes: 4096}},
		Saturated: 2, Underflown: 7,
		Layers: []Layer{
			{Layer: -1, Totals: output.Totals, Components: []Component{{label.ComponentOutput, 1, output.Totals}},
				Tensors: []Tensor{output}},
			{Layer: 0, Totals: tensor.Totals, Components: []Component{{label.ComponentResidual, 2, tensor.Totals}},
				Tensors: []Tensor{tensor, long}},
		},
	}
}

func TestGoldenText(t *testing.T) {
	foreign := &Summary{Path: "a.stream", Kind: KindForeign,
		Totals:  Totals{Packets: 2, BytesRaw: 10, BytesStored: 10, Ratio: 1},
		Assumed: "no index: " + strings.Repeat("this and that is not known, and ", 6) + "elements are f16",
		Layers: []Layer{{Layer: -1, Components: []Component{{Tensors: 1,
			Totals: Totals{Packets: 2, BytesRaw: 10, BytesStored: 10, Ratio: 1}}}}}}
	unsealed := &Summary{Path: "run", Kind: KindRun,
		Damage: []string{"stream: truncated: the last 17 bytes are not a whole packet"}}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"summary":  func(b *bytes.Buffer) error { return summaryOfAll().WriteText(b) },
		"tensors":  func(b *bytes.Buffer) error { return summaryOfAll().WriteTensors(b) },
		"stats":    func(b *bytes.Buffer) error { return summaryOfAll().WriteStats(b) },
		"foreign":  func(b *bytes.Buffer) error { return foreign.WriteText(b) },
		"unsealed": func(b *bytes.Buffer) error { return unsealed.WriteText(b) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(b.String(), "\n") {
			if n := utf8.RuneCountInString(line); n > Width {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		file := "testdata/" + name + ".txt"
		if *update {
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s differs from %s (%v); got\n%s", name, file, err, b.String())
		}
	}
}
