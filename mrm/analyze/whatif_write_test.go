package analyze

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/memtrace"
)

// report is of a cache, weights and activations that nobody wrote.
func report(t *testing.T) *Report {
	t.Helper()
	weights := subject{Type: memtrace.Weight, Name: "output.weight", Region: 7, Bytes: 1 << 20, Seconds: 100,
		BytesRead: 1 << 30, Lives: lives(1<<20, nil, []float64{99}), Written: 1 << 20, WrittenOnce: 1 << 20}
	idle := subject{Type: memtrace.Activation, Name: "h", Bytes: 64, Seconds: 100}
	all := builtinClasses()
	return whatIf([]subject{example(), weights, idle}, all, all.Classes, demandOptions{Tokens: 10})
}

// TestForms: the report is written in every form, and reads back.
func TestWhatIfForms(t *testing.T) {
	r := report(t)
	n := len(builtinClasses().Classes)
	if len(r.Types) != 3*n || len(r.Regions) != 3*n || len(r.Labels) != 3 {
		t.Fatalf("%d rows of types, %d of regions", len(r.Types), len(r.Regions))
	}
	var text, rows, vary, labels, js bytes.Buffer
	for _, write := range []error{r.WriteText(&text), r.WriteCSV(&rows), r.writeSensitivityCSV(&vary),
		r.writeLabelsCSV(&labels), r.WriteJSON(&js)} {
		if write != nil {
			t.Fatal(write)
		}
	}
	for _, want := range []string{"weight", "hbm2", "as_it_is", "Fine-Grained DRAM", "(2017)", "≥ 1.65 min",
		"high_mrm", "lifetime_years ="} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	var none bytes.Buffer
	empty := whatIf(nil, builtinClasses(), builtinClasses().Classes, demandOptions{})
	if err := empty.WriteText(&none); err != nil || !strings.Contains(none.String(), "--tap-ledger") ||
		strings.Contains(none.String(), "Figures of devices") {
		t.Errorf("%v of a run without accesses:\n%s", err, none.String())
	}
	for name, b := range map[string]*bytes.Buffer{"rows": &rows, "sensitivity": &vary, "labels": &labels} {
		lines, err := csv.NewReader(b).ReadAll()
		if err != nil || len(lines) < 4 {
			t.Errorf("%s: %d lines, %v", name, len(lines), err)
		}
	}
	var back struct {
		Types []struct {
			Type     string              `json:"region_type"`
			Lifetime map[string]*float64 `json:"lifetime_years"`
			Bytes    float64             `json:"bytes"`
		} `json:"by_type"`
	}
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || len(back.Types) != 3*n {
		t.Fatalf("%v: %s", err, js.String())
	}
	for _, row := range back.Types {
		if row.Type == "activation" && row.Lifetime != nil && row.Lifetime["low"] != nil && *row.Lifetime["low"] < 1e6 {
			t.Errorf("what is not written wears out: %+v", row)
		}
	}
}

func TestWhatIfTexts(t *testing.T) {
	for got, want := range map[string]string{
		sheet.WithUnit(sheet.TimeUnits, 90):     "1.5 min",
		sheet.WithUnit(sheet.TimeUnits, 0.0015): "1.5 ms",
		sheet.WithUnit(sheet.TimeUnits, 86400):  "1 d",
		sheet.WithUnit(sheet.TimeUnits, 3e-9):   "3 ns",
		sheet.WithUnit(sheet.TimeUnits, 0):      "0 ns",
		threeDigits(1234567):                    "1.2e+06", threeDigits(0): "0", threeDigits(3.14159): "3.14",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
