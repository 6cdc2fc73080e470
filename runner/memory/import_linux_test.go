package memory

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
	"github.com/llamatap/llamatap/store/rundir"
)

// samplesOf reads a text of perf script as its own package does.
func samplesOf(t *testing.T, path string) (all []memtrace.Access) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := perf.NewText(file, perf.TextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var a memtrace.Access
	for err = text.Next(&a); err == nil; err = text.Next(&a) {
		all = append(all, a)
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return all
}

// TestImportTexts checks that every sample of several texts is a row with all its fields.
func TestImportTexts(t *testing.T) {
	data := filepath.Join(testenv.Root(t), "memtrace", "sample", "perf", "testdata")
	files := []string{filepath.Join(data, "intel.txt"), filepath.Join(data, "amd.txt")}
	result, err := Import(ImportOptions{Files: files, Out: t.TempDir(), Version: "v"})
	if err != nil {
		t.Fatal(err)
	}
	var want []memtrace.Access
	for _, f := range files {
		want = append(want, samplesOf(t, f)...)
	}
	rows := columns(t, filepath.Join(result.Dir, rundir.TraceName), "ts_ns", "addr", "op", "cache_level",
		"latency_cycles", "weight", "collector", "symbol", "tid")
	key := func(ts, addr any) string { return strings.Join([]string{toText(ts), toText(addr)}, " ") }
	found := map[string]int{}
	for i := range rows["ts_ns"] {
		found[key(rows["ts_ns"][i], rows["addr"][i])] = i
	}
	if len(rows["ts_ns"]) != len(want) || len(want) < 50 {
		t.Fatalf("%d rows of %d samples", len(rows["ts_ns"]), len(want))
	}
	for _, a := range want {
		i, ok := found[key(a.TimeNS, int64(a.Addr))]
		if !ok || rows["op"][i] != a.Op.String() || rows["cache_level"][i] != a.Level.String() ||
			rows["collector"][i] != a.Collector.String() || rows["tid"][i] != int64(a.TID) ||
			rows["symbol"][i] != a.Symbol || a.Weight > 0 && rows["weight"][i] != int64(a.Weight) || a.Latency > 0 &&
			rows["latency_cycles"][i] != int64(a.Latency) {
			t.Errorf("%+v is row %d", a, i)
		}
	}
	text, err := os.ReadFile(filepath.Join(result.Dir, rundir.MetadataName))
	if err != nil {
		t.Fatal(err)
	}
	var m rundir.Metadata
	var about []imported
	if err := errors.Join(json.Unmarshal(text, &m), json.Unmarshal(m.Extra["imported"], &about)); err != nil {
		t.Fatal(err)
	}
	if len(about) != 2 || about[0].Kind != "perf script" || about[0].Samples+about[1].Samples != uint64(len(want)) ||
		len(about[0].SHA256) != 64 || result.Use.Lossy {
		t.Errorf("%+v, %+v", about, result.Use)
	}
}

func toText(v any) string { return strconv.FormatInt(v.(int64), 10) }

// TestImportOfPerf: what perf has recorded of a program with known accesses comes out of its file, with the
// mappings that lie in it.
func TestImportOfPerf(t *testing.T) {
	perf := testenv.NeedPerf(t)
	file := filepath.Join(t.TempDir(), "perf.data")
	cmd := exec.Command(perf, "record", "-q", "-k", "CLOCK_MONOTONIC", "-d", "-e", "page-faults", "-c", "1", "-o", file,
		"--", toucher(t), "4096")
	cmd.Stdin = strings.NewReader("10 3 700\n")
	said, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 7) {
		testenv.Beyond(t, "a perf that may record", err.Error())
	}
	base, err := strconv.ParseInt(strings.Fields(string(said))[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	result, err := Import(ImportOptions{Files: []string{file}, Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	rows := columns(t, filepath.Join(result.Dir, rundir.TraceName), "addr", "region_type", "region_id", "collector")
	regions := columns(t, filepath.Join(result.Dir, rundir.RegionsName), "region_id")
	var pages, want []int
	for i := range rows["addr"] {
		addr := rows["addr"][i].(int64)
		if addr < base || addr >= base+4096<<12 {
			continue
		}
		pages = append(pages, int(addr-base)>>12)
		if rows["collector"][i] != "fault" || rows["region_type"][i] != "runtime" ||
			!slices.Contains(regions["region_id"], rows["region_id"][i]) {
			t.Errorf("%v in %v", rows["region_type"][i], rows["region_id"][i])
		}
	}
	for i := range 700 {
		want = append(want, 10+3*i)
	}
	if slices.Sort(pages); !slices.Equal(pages, want) {
		t.Errorf("%d pages imported, %d touched", len(pages), len(want))
	}
}

// TestImportRefused checks that a file of another kind is reported by name and leaves nothing behind.
func TestImportRefused(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, name := range []string{
		filepath.Join(folder, "none"), folder, write("empty", ""), write("other", "a text\nof something else\n"),
		write("torn", "PERFILE2"), write("table.parquet", "PAR1\x15\x04"),
		write("foreign", "2ELIFREP"+strings.Repeat("\x00", 200)),
	} {
		out := filepath.Join(t.TempDir(), "runs")
		_, err := Import(ImportOptions{Files: []string{name}, Out: out})
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(out); len(left) != 0 {
			t.Errorf("%s left %v", name, left)
		}
	}
}

// TestImportInfersTypes: samples of a text, which has no mappings, are of the type that their functions say, and
// marked so; the metrics have a row for each.
func TestImportInfersTypes(t *testing.T) {
	const head, place = "llama 77/77 [001] ", " (/usr/lib/libggml-cpu.so)\n"
	text := head + "1000.000000001: 1 cpu/mem-loads,ldlat=30/P: 7f0000001000 7e0000000010 ggml_vec_dot_q8_0_q8_0+0x10" +
		place +
		head + "1000.500000001: 1 cpu/mem-stores/P: 7f0000401000 7e0000000020 llama_kv_cache_update+0x20" + place +
		head + "1002.000000001: 1 cpu/mem-loads,ldlat=30/P: 7f0000401000 7e0000000030 llama_kv_cache_read+0x20" +
		place +
		head + "1003.000000001: 1 cpu/mem-loads,ldlat=30/P: 7f0000801000 7e0000000040 main+0x1" + place
	file := filepath.Join(t.TempDir(), "perf_script.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := Import(ImportOptions{Files: []string{file}, Out: t.TempDir(), Version: "v"})
	if err != nil {
		t.Fatal(err)
	}
	rows := columns(t, filepath.Join(result.Dir, rundir.TraceName), "region_type", "flags")
	for i, want := range []string{"weight", "kv_cache", "kv_cache", "other"} {
		if rows["region_type"][i] != want || (rows["flags"][i] == int64(memtrace.TraceInferred)) != (want != "other") {
			t.Errorf("row %d is of %v, flags %v, want %s", i, rows["region_type"][i], rows["flags"][i], want)
		}
	}
	report, err := memory.Analyze(t.Context(), result.Dir, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if kv := report.Type("kv_cache"); kv == nil || kv.Observed == nil || kv.Observed.RetentionP50 == nil ||
		*kv.Observed.RetentionP50 != 1.5 || *kv.Observed.WriteOnce != 1 {
		t.Errorf("%+v", kv)
	}
}
