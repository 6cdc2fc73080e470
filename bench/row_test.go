package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// rows are two: one with everything and characters that forms must quote, one with what every row has.
func rows() []Row {
	full := NewRow()
	full.BuildCommit, full.BuildNumber, full.Backends, full.ModelFile = new("abc"), new(7), "CPU", `a "b", 'c'|.gguf`
	full.ModelType, full.ModelSize, full.Parameters = "llama 1B", 1<<30, 1e9
	full.Threads, full.Batch, full.MicroBatch, full.TypeK, full.TypeV, full.FlashAttn = 2, 2048, 512, "f16", "f16", -1
	full.Prompt, full.Gen, full.SamplesNS = 6, 4, []int64{1e9, 2e9, 4e9}
	full.PromptName, full.Tap, full.TapFlags = new("a"), new("b"), new("--tap-layers=0")
	full.MedianTS, full.LowTS, full.HighTS = new(5.0), new(4.0), new(6.0)
	full.FirstNS, full.TokenP50, full.TokenP90, full.TokenP99 = new(int64(1e6)), new(int64(1)), new(int64(2)),
		new(int64(3))
	full.Captured, full.Stored, full.Recorded, full.OwnNS = new(uint64(100)), new(uint64(50)), new(int64(10)),
		new(int64(1))
	full.WaitNS, full.GraphNS, full.Lost = new(int64(0)), new(int64(100)), new(uint64(0))
	plain := NewRow()
	plain.Backends, plain.ModelType, plain.Threads, plain.Gen, plain.SamplesNS = "CPU", "llama 1B", 2, 8, []int64{1e9}
	plain.Batch, plain.MicroBatch, plain.TypeK, plain.TypeV, plain.FlashAttn = 2048, 512, "f16", "f16", -1
	full.Summarise()
	plain.Summarise()
	return []Row{full, plain}
}

func written(t *testing.T, format string) string {
	t.Helper()
	var out bytes.Buffer
	if err := WriteRows(&out, format, rows()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSummarise(t *testing.T) {
	r := rows()[0]
	if r.AvgNS != 2333333333 || r.StddevNS != 1527525231 || math.Abs(r.AvgTS-17.5/3) > 1e-9 ||
		math.Abs(r.StddevTS-3.818813) > 1e-6 {
		t.Errorf("%d ± %d ns, %f ± %f t/s", r.AvgNS, r.StddevNS, r.AvgTS, r.StddevTS)
	}
	r.Sequences = new(3)
	if r.Summarise(); math.Abs(r.AvgTS-17.5) > 1e-9 {
		t.Errorf("three sequences: %f t/s", r.AvgTS)
	}
	if one := rows()[1]; one.StddevNS != 0 || one.StddevTS != 0 || one.AvgTS != 8 {
		t.Errorf("one sample: %+v", one)
	}
}

func TestCSV(t *testing.T) {
	table, err := csv.NewReader(strings.NewReader(written(t, "csv"))).ReadAll()
	if err != nil || len(table) != 3 || !slices.Equal(table[0], columnNames()) {
		t.Fatalf("%v, %q", err, table)
	}
	for i, c := range columns {
		want := rows()
		if table[1][i] != c.text(&want[0]) || table[2][i] != c.text(&want[1]) {
			t.Errorf("%s: %q and %q", c.name, table[1][i], table[2][i])
		}
	}
}

// TestJSON reads both forms again: nothing is lost, and what is absent has no key.
func TestJSON(t *testing.T) {
	for _, format := range []string{"json", "jsonl"} {
		text := written(t, format)
		got, err := ReadRows(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := WriteRows(&again, format, got); err != nil || again.String() != text {
			t.Errorf("%s: %v\n%s\n%s", format, err, again.String(), text)
		}
	}
	var plain []map[string]any
	if err := json.Unmarshal([]byte(written(t, "json")), &plain); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"build_commit", "tap", "ttft_ns", "captured_bytes", "environment"} {
		if _, there := plain[1][key]; there {
			t.Errorf("%s stands in a row that lacks it", key)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, text := range []string{"", "[]", "x", `[{"n_gen": 1}]`, `{"samples_ns": [1]}`, "[1]"} {
		if _, err := ReadRows(strings.NewReader(text)); !errors.Is(err, ErrNoRows) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := WriteRows(&bytes.Buffer{}, "xml", rows()); err == nil {
		t.Error("xml is a form")
	}
}

// TestMarkdown has columns for what differs from llama-bench's defaults, and none for what does not.
func TestMarkdown(t *testing.T) {
	lines := strings.Split(written(t, "md"), "\n")
	if !strings.HasPrefix(lines[3], "| llama 1B                       |   0.00 MiB |     0.00 M | CPU        |      "+
		" 2 |             tg8 |          8.00 ± 0.00 |") {
		t.Errorf("row: %s", lines[3])
	}
	for i, line := range lines[:4] {
		if n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); n != strings.Count(lines[0], "|") {
			t.Errorf("line %d has %d bars: %s", i, n, line)
		}
	}
	more := rows()
	more[1].Batch, more[1].FlashAttn = 64, 1
	var out bytes.Buffer
	if err := WriteRows(&out, "md", more); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| threads | n_batch |  fa |") {
		t.Errorf("settings that vary have no column:\n%s", out.String())
	}
}

// TestMarkdownRenders lets a renderer that somebody else wrote make HTML of the table: as many rows and cells as we
// have, and the characters that Markdown has a use for stand in it as text.
func TestMarkdownRenders(t *testing.T) {
	python := testenv.NeedPython(t, "markdown_it")
	cmd := exec.Command(python, "-c", `
import sys
from markdown_it import MarkdownIt
tokens = MarkdownIt("commonmark").enable("table").parse(sys.stdin.read())
kinds = [t.type for t in tokens]
print(kinds.count("table_open"), kinds.count("tr_open"), kinds.count("th_open"), kinds.count("td_open"))
print(*[t.content for t in tokens if t.type == "inline" and "|" in t.content], sep="\n")`)
	list := rows()
	list[0].PromptName = new("a|b")
	var text bytes.Buffer
	if err := WriteRows(&text, "md", list); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = bytes.NewReader(text.Bytes())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	columns := len(markdown(list))
	if want := fmt.Sprintf("1 3 %d %d\na|b\n", columns, 2*columns); string(out) != want {
		t.Errorf("%s, want %s of\n%s", out, want, text.String())
	}
}

// stock is what llama-bench itself writes of a test that takes milliseconds.
func stock(t *testing.T, format string, args ...string) string {
	t.Helper()
	path := filepath.Join(testenv.NeedLlama(t), "run", "llama-bench")
	args = append([]string{"-m", testenv.Model(t), "-p", "2", "-n", "1", "-r", "1", "-t", "1", "-o", format}, args...)
	out, err := exec.Command(path, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestStockColumns compares with llama-bench: its columns come first, in its order, with its types and heads.
func TestStockColumns(t *testing.T) {
	head := func(text string) string { line, _, _ := strings.Cut(text, "\n"); return line }
	for _, format := range []string{"csv", "md"} {
		if want := head(stock(t, format)); !strings.HasPrefix(head(written(t, format)), want) {
			t.Errorf("%s: %s does not begin with %s", format, head(written(t, format)), want)
		}
	}
	if want := strings.Split(head(stock(t, "csv")), ","); len(want) != llamaColumns ||
		!slices.Equal(want, columnNames()[:llamaColumns]) {
		t.Errorf("columns %q, want %q", columnNames()[:llamaColumns], want)
	}
	table, _, _ := strings.Cut(stock(t, "sql"), "\n);")
	if !strings.HasPrefix(written(t, "sql"), table+",\n") {
		t.Errorf("sql does not begin with %s", table)
	}
	flags := []string{"-b", "64", "-ub", "32", "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"}
	other := NewRow()
	other.Backends, other.Batch, other.MicroBatch, other.TypeK, other.TypeV, other.FlashAttn = "CPU", 64, 32, "q8_0",
		"q8_0", 1
	var out bytes.Buffer
	if err := WriteRows(&out, "md", []Row{other}); err != nil {
		t.Fatal(err)
	}
	if want := head(stock(t, "md", flags...)); !strings.HasPrefix(out.String(), want) {
		t.Errorf("%s does not begin with %s", head(out.String()), want)
	}
}

// TestStockJSON reads what llama-bench wrote.
func TestStockJSON(t *testing.T) {
	for _, format := range []string{"json", "jsonl"} {
		got, err := ReadRows(strings.NewReader(stock(t, format)))
		if err != nil || len(got) != 2 || got[0].Test() != "pp2" || got[1].Test() != "tg1" || got[0].AvgTS <= 0 ||
			got[0].BuildNumber == nil {
			t.Errorf("%s: %v, %+v", format, err, got)
		}
		other := NewRow()
		first := got[0]
		if first.Poll != other.Poll || first.CPUMask != other.CPUMask || first.Repack != other.Repack ||
			first.LazyMode != other.LazyMode ||
			first.LoadMode != other.LoadMode || first.SplitMode != other.SplitMode || first.Devices != other.Devices ||
			first.TensorSplit != other.TensorSplit || first.TensorBuffers != other.TensorBuffers {
			t.Errorf("New gives other defaults than llama-bench:\n%+v\n%+v", other, first)
		}
	}
}

// TestSQL loads our rows and llama-bench's into one table.
func TestSQL(t *testing.T) {
	python := testenv.NeedPython(t, "sqlite3")
	cmd := exec.Command(python, "-c", `
import sqlite3, sys
db = sqlite3.connect(":memory:")
db.executescript(sys.stdin.read())
print(*db.execute("select count(*), count(tap), max(typeof(avg_ts)), max(typeof(n_gen)) from llama_bench").fetchone())
print(*db.execute("select model_filename from llama_bench where tap is not null").fetchone())`)
	cmd.Stdin = strings.NewReader(written(t, "sql") + stock(t, "sql"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want := "4 1 real integer\n" + `a "b", 'c'|.gguf` + "\n"; string(out) != want {
		t.Errorf("%s, want %s", out, want)
	}
}

// TestSettings are all that llama-bench has, and what is recorded.
func TestSettings(t *testing.T) {
	r := rows()[0]
	r.Sequences = new(3)
	got := r.Settings()
	if len(got) != 27 || got[0] != "n_batch 2048" || got[24] != "fit_min_ctx 0" || got[25] != "n_seq 3" ||
		got[26] != "tap_flags --tap-layers=0" {
		t.Errorf("%d: %q", len(got), got)
	}
	old, err := ReadRows(strings.NewReader(`[{"n_gen": 1, "samples_ns": [1]}]`))
	if err != nil || old[0].LazyMode != "auto" {
		t.Errorf("a setting that another version does not report: %+v, %v", old, err)
	}
	if _, err := ReadRows(strings.NewReader(`[{"n_gen": 1, "samples_ns": [1]}`)); !errors.Is(err, ErrNoRows) {
		t.Errorf("a list that is cut: %v", err)
	}
}
