package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/resource"
)

func readRun(t testing.TB, dir string) *Run {
	t.Helper()
	run, err := Read(context.Background(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestPage compares the sections of a run with the golden file.
func TestPage(t *testing.T) {
	page, err := readRun(t, quiet().write(t)).Page(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetIndent("", " ")
	if err := e.Encode(page.Sections); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`[^" ]*/never/[^"]*|/[^" ]*/run[^" ]*`).ReplaceAll(got.Bytes(), []byte("RUN"))
	golden := filepath.Join("testdata", "page.json")
	if *update {
		if err := os.WriteFile(golden, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Errorf("the page differs from %s (-update writes it anew):\n%s", golden, text)
	}
}

// TestPageAgrees recomputes what the charts show from the run's own events.
func TestPageAgrees(t *testing.T) {
	run := readRun(t, quiet().write(t))
	page, err := run.Page(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	spans := page.Sections[0].Charts[0]
	seconds := map[string]float64{}
	for _, s := range spans.Series {
		for i, w := range s.W {
			seconds[s.Name] += w
			if s.X[i] < 0 || s.Row[i] >= len(spans.Rows) {
				t.Errorf("%s: %v in row %d of %d", s.Name, s.X[i], s.Row[i], len(spans.Rows))
			}
		}
	}
	for phase, want := range map[string]float64{prefill: 0.1, decode: 0.2, "setup": 0} {
		if math.Abs(seconds[phase]-want) > 1e-6 {
			t.Errorf("%s takes %v s in the chart, not %v", phase, seconds[phase], want)
		}
	}
}

// TestHTML: the file needs nothing else, runs no script but its own, and shows strings of the run as text.
func TestHTML(t *testing.T) {
	const hostile = `</script><script>alert(1)</script>"'&<!--`
	m := quiet()
	m.settings = map[string]any{"resource_level": hostile}
	dir := m.write(t)
	run := readRun(t, dir)
	run.Model, run.Metadata.Model.Name = hostile, hostile
	run.note("%s", hostile)
	run.Resources.Phases = append(run.Resources.Phases, resources.PhaseRow{Phase: hostile})
	var out bytes.Buffer
	if err := WriteHTML(context.Background(), &out, run); err != nil {
		t.Fatal(err)
	}
	html := out.String()
	if strings.Contains(html, "alert(1)</script>") || strings.Count(html, "<script") != 2 {
		t.Error("a string of the run became markup")
	}
	for _, never := range []string{"http://", "https://", "src=", "@import", "url(http"} {
		if rest := strings.ReplaceAll(html, "http://www.w3.org/2000/svg", ""); strings.Contains(rest, never) {
			t.Errorf("the file has %q", never)
		}
	}
	for _, has := range []string{"default-src 'none'", "&#39;sha256-", "<h1 id=\"verdict\">"} {
		if rest := strings.ReplaceAll(html, "default-src &#39;none&#39;", "default-src 'none'"); !strings.Contains(rest,
			has) {
			t.Errorf("the file lacks %q", has)
		}
	}
	_, data, _ := strings.Cut(html, `id="charts">`)
	data, _, _ = strings.Cut(data, "</script>")
	var charts []figure
	if err := json.Unmarshal([]byte(data), &charts); err != nil || len(charts) == 0 {
		t.Errorf("%d charts: %v", len(charts), err)
	}
}

// TestPageOfLittle: each section of a run without its recorder names what records it.
func TestPageOfLittle(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "metadata.json"), []byte(`{"version":1,"losses":[]}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	page, err := readRun(t, dir).Page(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range page.Sections {
		if len(s.Charts) > 0 || s.Missing == "" && len(s.Text)+len(s.Tables) == 0 {
			t.Errorf("%s: %+v", s.Title, s)
		}
	}
}

// TestPicture: the charts over time are a picture in every form; a run without times says what records them.
func TestPicture(t *testing.T) {
	page, err := readRun(t, quiet().write(t)).Page(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for form, begin := range map[string]string{"png": "\x89PNG", "svg": "<?xml", "pdf": "%PDF"} {
		path := filepath.Join(t.TempDir(), "run."+form)
		if err := page.Save(path); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(b), begin) || len(b) < 4000 {
			t.Errorf("%s: %d bytes, %v", form, len(b), err)
		}
	}
	page.Sections = nil
	if err := page.Save(filepath.Join(t.TempDir(), "run.png")); !errors.Is(err, ErrNoTime) {
		t.Errorf("without charts: %v", err)
	}
}

// TestPageOfBrokenRun: what can be read of a run is shown, and what cannot is named.
func TestPageOfBrokenRun(t *testing.T) {
	for name, broken := range map[string]string{"metadata.json": `{"version":1,`, "system_metrics.jsonl": "\x00\x01{",
		"host_waits.jsonl": "{}\n[", "kv_block_lifecycle.parquet": "PAR1 no table", "activations.stream": "no stream",
		"trace.parquet": "PAR1PAR1"} {
		dir := quiet().write(t)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		page, err := readRun(t, dir).Page(context.Background())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c := page.Sections[0].Charts; len(c) == 0 {
			t.Errorf("%s: the tokens are not shown: %+v", name, page.Sections[0])
		}
		var lines strings.Builder
		for _, s := range page.Sections {
			lines.WriteString(s.Missing + strings.Join(s.Text, " "))
		}
		if len(page.Notes) == 0 && !strings.Contains(lines.String(), name) {
			t.Errorf("%s: nothing says so: %s", name, lines.String())
		}
	}
}

// TestRoofline: a component of which a part has no known work is named and not drawn; the others are drawn in one
// order.
func TestRoofline(t *testing.T) {
	m := quiet()
	ns, flops, bytes := int64(1000), int64(5000), int64(1000)
	for _, component := range []string{"mlp", "attention", "output", "attention"} {
		e := resource.Compute{Header: m.head(resource.KindCompute), Exec: 9, Phase: decode, Operation: "MUL_MAT",
			ComponentType: component, NodeCount: 1, TimeSource: resource.TimeOp, DurationNS: &ns, FLOPs: &flops,
			BytesRead: &bytes, BytesWritten: ptr(int64(0))}
		if component == "output" {
			e.FLOPs, e.OpsWithoutFLOPs = nil, 1
		}
		var text strings.Builder
		line(t, &text, e)
		m.more += text.String()
	}
	run := readRun(t, m.write(t))
	for range 20 {
		s, err := rooflineSection(context.Background(), run, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := s.Charts[0]
		if got := c.Series[0]; got.Name != decode || !slices.Equal(got.Text, []string{"attention", "mlp"}) ||
			got.X[0] != 5 || got.Y[0] != 5 {
			t.Fatalf("%+v", got)
		}
		if !strings.Contains(c.Note, "output of decode") {
			t.Fatalf("%q", c.Note)
		}
	}
}
