package memory

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
)

// used are samples of two processes: loads and stores with a period of 1000, and every page fault.
func used() (rows []row) {
	for i := range 40 {
		op := []memtrace.AccessOp{read, read, read, write}[i%4]
		s := sampled(int64(i), memtrace.CollectorPerf, op, weight, 1, 1<<20+i*2048, 8, 1000)
		rows = append(rows, s.with(memtrace.TracePID, 7, memtrace.TraceSymbol, "_ZN5model7forwardEi",
			memtrace.TraceDataSymbol, "table"))
	}
	for i := range 10 {
		s := sampled(int64(100+i), memtrace.CollectorPerf, read, weight, 1, 1<<20, 4, 3000)
		rows = append(rows, s.with(memtrace.TracePID, 8, memtrace.TraceSymbol, "main"))
	}
	for i := range 6 { // the same pages in either process; which op it was is unknown
		s := sampled(int64(200+i), memtrace.CollectorFault, memtrace.OpUnknown, weight, 1, 1<<20+i/2*4096, 0, 1)
		rows = append(rows, s.with(memtrace.TracePID, 7+i%2, memtrace.TraceDataSymbol, "table"))
	}
	return append(rows, sampled(300, memtrace.CollectorFault, write, weight, 1, 5<<20, 0,
		1).with(memtrace.TraceDataSymbol, "_ZN5model5cacheE"))
}

// useNamed is what a collector says of a function, variable or program.
func useNamed(t *testing.T, all []Use, collector, name string) Use {
	t.Helper()
	for _, u := range all {
		if u.Collector == collector && u.Symbol+u.DataSymbol+u.Program == name {
			return u
		}
	}
	t.Fatalf("nothing of %q by %s in %+v", name, collector, all)
	return Use{}
}

// TestUses compares reported functions, variables and processes with those put in.
func TestUses(t *testing.T) {
	dir := run(t, used(), 16)
	writeFile(t, dir, "metadata.json",
		[]byte(`{"version":1,"extra":{"processes":[`+
			`{"pid":7,"name":"sh"},{"pid":7,"name":"server"},{"pid":7,"name":"sh"},{"pid":8,"name":"worker"}]}}`))
	r := analyze(t, dir, Options{Uses: true})
	forward := useNamed(t, r.Symbols, "perf", "_ZN5model7forwardEi")
	half := 1.96 * 1000 * math.Sqrt(30)
	if e := forward.Events["read"]; e.Events != 30_000 || e.Samples != 30 || math.Abs(e.Low-30_000+half) > 1 ||
		math.Abs(e.High-30_000-half) > 1 {
		t.Errorf("%+v", e)
	}
	if forward.Demangled != "model::forward(int)" || forward.Source != Estimated || forward.BytesRead != 8*30_000 ||
		forward.BytesWritten != 8*10_000 || *forward.PagesSeen != 20 ||
		math.Abs(forward.Share-4.0/7) > 1e-9 || forward.Samples != 40 {
		t.Errorf("%+v", forward)
	}
	if u := useNamed(t, r.Symbols, "perf", "main"); u.Demangled != "" || u.BytesRead != 4*30_000 ||
		u.BytesWritten != 0 || *u.PagesSeen != 1 {
		t.Errorf("%+v", u)
	}
	table := useNamed(t, r.DataSymbols, "fault", "table")
	if e := table.Events["unknown"]; e.Events != 6 || e.Low != 6 || e.High != 6 || table.Source != Measured ||
		*table.PagesSeen != 6 || table.BytesRead != 0 || math.Abs(table.Share-6.0/7) > 1e-9 {
		t.Errorf("%+v", table)
	}
	if u := useNamed(t, r.DataSymbols, "perf", ""); u.Samples != 10 { // what nobody named
		t.Errorf("%+v", u)
	}
	if u := useNamed(t, r.Processes, "perf", "sh, server"); *u.PID != 7 || u.Samples != 40 {
		t.Errorf("%+v", u)
	}
	if u := useNamed(t, r.Processes, "fault", "worker"); *u.PID != 8 || u.Samples != 3 || *u.PagesSeen != 3 {
		t.Errorf("%+v", u)
	}
	if u := useNamed(t, r.Processes, "fault", ""); u.PID != nil || u.Samples != 1 {
		t.Errorf("%+v", u)
	}
	if plain := analyze(t, dir, Options{}); len(plain.Symbols)+len(plain.DataSymbols)+len(plain.Processes) > 0 {
		t.Errorf("nobody asked for %+v", plain.Symbols)
	}
}

// TestUseTables: what is known stands in each form, what is not is left out of it.
func TestUseTables(t *testing.T) {
	r := analyze(t, run(t, used(), 100), Options{Uses: true})
	for _, c := range []struct {
		by   By
		csv  bool
		want []string
	}{
		{BySymbol, true, []string{"collector,symbol,demangled,samples,share,",
			"perf,_ZN5model7forwardEi,model::forward(int),40,0.5714285714285714,40000,",
			",30000,10000,240000,80000,20\n", "fault,,,7,1,7,7,7,,1,,,7\n"}},
		{ByDataSymbol, true, []string{"collector,data_symbol,demangled,", "fault,table,,6,",
			"fault,_ZN5model5cacheE,model::cache,1,"}},
		{ByProcess, true, []string{"collector,pid,name,", "perf,7,,40,", "fault,8,,3,", "fault,,,1,"}},
		{BySymbol, false, []string{"function", "model::forward(int)", "27604 to", "234 KiB", "57.1 %"}},
		{ByDataSymbol, false, []string{"variable", "model::cache", "exact"}},
		{ByProcess, false, []string{"process", "program", "42.9 %"}},
	} {
		var b bytes.Buffer
		var err error
		if c.csv {
			err = r.WriteCSV(&b, c.by)
		} else {
			err = r.WriteText(&b, c.by, 5)
		}
		for _, want := range c.want {
			if err != nil || !strings.Contains(b.String(), want) {
				t.Errorf("%s, csv %v: %v, no %q in\n%s", c.by, c.csv, err, want, b.String())
			}
		}
		if strings.Contains(b.String(), "_ZN") != (c.csv && c.by != ByProcess) {
			t.Errorf("%s, csv %v: files have the linker's names, texts for people have not:\n%s", c.by, c.csv,
				b.String())
		}
	}
	text, err := json.Marshal(r)
	for _, want := range []string{`"by_symbol":[{"collector":"fault"`,
		`"symbol":"_ZN5model7forwardEi","demangled":"model::forward(int)"`, `"by_process":[`, `"pid":7`,
		`"by_data_symbol":[`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: no %s in %s", err, want, text)
		}
	}
}

// TestUsesOfNobody: a run of a ledger alone has none, and says what would have.
func TestUsesOfNobody(t *testing.T) {
	r := analyze(t, run(t, decode(), 100), Options{Uses: true})
	var b bytes.Buffer
	if err := r.WriteText(&b, ByProcess, 5); err != nil || !strings.Contains(b.String(), "--tap-samples") ||
		strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%v: %s", err, b.String())
	}
}

// TestUsesAreBounded: values and pages beyond the limits are reported as more.
func TestUsesAreBounded(t *testing.T) {
	testenv.Slow(t)
	testenv.Once(t, "TestUses")
	var rows []row
	for i := range maxUses + 5 {
		rows = append(rows, sampled(int64(i), memtrace.CollectorFault, write, weight, 1, 4096, 1,
			1).with(memtrace.TracePID, i+1))
	}
	rows = append(rows, sampled(1, memtrace.CollectorPage, write, weight, 1, 1<<40, maxSeen*4096,
		1).with(memtrace.TracePID, 1))
	r := analyze(t, run(t, rows, 1<<17), Options{Uses: true})
	if len(r.Processes) != maxUses || !strings.Contains(strings.Join(r.Notes, "\n"),
		"1048581 samples are of more than 65536 different values of pid") {
		t.Errorf("%d processes; %s", len(r.Processes), r.Notes)
	}
	if u := useNamed(t, r.Symbols, "page", ""); u.PagesSeen != nil || u.BytesWritten != maxSeen*4096 {
		t.Errorf("%+v", u)
	}
}
