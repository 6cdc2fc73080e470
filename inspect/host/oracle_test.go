package host

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestOthersCompute lets pandas, NumPy and SciPy compute every figure of reports anew.
func TestOthersCompute(t *testing.T) {
	python := testenv.NeedPython(t, "numpy", "pandas", "scipy.stats")
	args := []string{"testdata/compare.py"}
	all := testenv.ByDay([]made{
		{devices: 1, snapshots: 40, interval: 1, begin: 1790000000},
		{devices: 2, snapshots: 50, interval: 5, strap: true, begin: 1790000000},
		{devices: 8, snapshots: 16, interval: 60, begin: 1790000000},
	}, 2)
	for _, m := range all {
		o := m.write(t)
		o.Lag = 2
		if m.devices == 1 {
			o.Percentiles = []float64{10, 50, 90, 99.9, 100}
		}
		text, err := json.Marshal(analyzed(t, o))
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, o.Block, o.System, put(t, t.TempDir(), "report.json", string(text)))
	}
	out, err := exec.Command(python, args...).CombinedOutput()
	if err != nil || strings.Count(string(out), "correlations") != len(all) {
		t.Errorf("%v: %s", err, out)
	}
}
