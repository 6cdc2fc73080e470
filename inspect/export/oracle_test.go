package export

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
)

// TestOthersRead exports a run in every form, and lets NumPy, safetensors, pyarrow, pandas, DuckDB and a reader of
// STRAP-LLM's layout compare each value with what 'llamatap cat' writes.
func TestOthersRead(t *testing.T) {
	python := testenv.NeedPython(t, "numpy", "safetensors", "pyarrow", "pandas", "duckdb", "lz4.frame", "zstandard")
	strap := map[string]codec.ID{"f16": codec.None, "f32": codec.LZ4, "bf16": codec.Zstd}
	for _, name := range testenv.ByDay(slices.Sorted(maps.Keys(formats)), 2) {
		f := formats[name]
		compareAll(t, python, name, f.build(t), strap[name])
	}
	segments := fixture{special: true}
	compareAll(t, python, "segments", segments.buildSegments(t), codec.LZ4)
}

func compareAll(t *testing.T, python, name, run string, strap codec.ID) {
	t.Helper()
	out := t.TempDir()
	cats(t, run, out)
	args := []string{"testdata/compare.py", out}
	for _, o := range []Options{{Form: NPY, Out: "npy"}, {Form: Safetensors, Out: "x.safetensors"},
		{Form: Parquet, Out: "x.parquet"},
		{Form: Arrow, Out: "x.arrow"}, {Form: Strap, Out: "x.stream", Codec: strap,
			Select: Selection{Ctx: new(uint32)}}} {
		o.Out = filepath.Join(out, o.Out)
		args = append(args, exported(t, run, o).Path)
	}
	args = append(args, filepath.Join(out, "x_tokens.json"), strap.String())
	if text, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", name, err, text)
	}
}
