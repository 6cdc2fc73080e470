package mrm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// sampledRun is a run directory with samples of each kind.
func sampledRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	schema := table.Schema{Columns: []table.Column{
		{Name: "collector", Kind: table.Text, Null: true}, {Name: "ts_ns", Kind: table.Int64, Null: true},
		{Name: "tid", Kind: table.Int32, Null: true},
		{Name: "weight", Kind: table.Uint64, Null: true}, {Name: "op", Kind: table.Text, Null: true},
		{Name: "addr", Kind: table.Uint64, Null: true},
		{Name: "data_symbol", Kind: table.Text, Null: true}, {Name: "cpu", Kind: table.Int32, Null: true},
	}, Metadata: [][2]string{{table.VersionKey, table.Version}}}
	file, err := os.Create(filepath.Join(dir, rundir.TraceName))
	if err != nil {
		t.Fatal(err)
	}
	out, err := table.NewParquet(file, schema)
	if err != nil {
		t.Fatal(err)
	}
	b := table.NewBatch(schema)
	row := func(collector memtrace.Collector, ns, tid, weight int64, op memtrace.AccessOp, addr uint64) {
		b.Text(0, collector.String())
		b.Int(1, ns)
		b.Int(2, tid)
		if weight > 0 {
			b.Int(3, weight)
		}
		if op != memtrace.OpUnknown {
			b.Text(4, op.String())
		}
		b.Int(5, int64(addr))
		if op == memtrace.OpWrite {
			b.Text(6, "ggml_vec_dot_q8_0")
		}
		b.Int(7, tid%2)
		if err := b.EndRow(); err != nil {
			t.Fatal(err)
		}
	}
	row(memtrace.CollectorGraph, 1, 0, 0, memtrace.OpRead, 0x10)
	row(memtrace.CollectorPerf, 1795287058806341525, 77, 10007, memtrace.OpRead, 0x7f0000001000)
	row(memtrace.CollectorPerf, 1795287058806341526, 77, 10007, memtrace.OpWrite, 0xffff800000001000)
	row(memtrace.CollectorFault, 1795287059000000007, 78, 1, memtrace.OpUnknown, 0x7f0000002000)
	row(memtrace.CollectorPage, 5, 0, 0, memtrace.OpWrite, 0x20)
	if err := errors.Join(out.Write(b), out.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPerfScript: what is written is read by our reader of perf's text as the same samples, the ledger's rows and
// pages left out.
func TestPerfScript(t *testing.T) {
	dir := sampledRun(t)
	var text bytes.Buffer
	if err := writePerfScript(context.Background(), &text, dir); err != nil {
		t.Fatal(err)
	}
	want := []memtrace.Access{
		{TimeNS: 1795287058806341525, TID: 77, CPU: 1, Weight: 10007, Op: memtrace.OpRead, Addr: 0x7f0000001000,
			Collector: memtrace.CollectorPerf},
		{TimeNS: 1795287058806341526, TID: 77, CPU: 1, Weight: 10007, Op: memtrace.OpWrite, Addr: 0xffff800000001000,
			Collector: memtrace.CollectorPerf},
		{TimeNS: 1795287059000000007, TID: 78, CPU: 0, Weight: 1, Addr: 0x7f0000002000,
			Collector: memtrace.CollectorFault},
	}
	for _, fields := range []string{"comm,tid,cpu,time,period,event,addr,sym,dso", ""} {
		in, err := perf.NewText(bytes.NewReader(text.Bytes()), perf.TextOptions{Fields: fields})
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			var got memtrace.Access
			if err := in.Next(&got); err != nil {
				t.Fatalf("sample %d: %v\n%s", i, err, text.String())
			}
			if got.PID = 0; got != want[i] {
				t.Errorf("sample %d is %+v, want %+v", i, got, want[i])
			}
		}
		var none memtrace.Access
		if err := in.Next(&none); err != io.EOF || in.Stats().Bad > 0 {
			t.Errorf("behind the last: %v, %+v", err, in.Stats())
		}
	}
}

// TestMRMTraceParsesPerfScript lets mrm-trace's own parser read the text: every sample of a user's address.
func TestMRMTraceParsesPerfScript(t *testing.T) {
	python := testenv.NeedPython(t, "mrm_trace.parser.perf_script_parser")
	var text bytes.Buffer
	if err := writePerfScript(context.Background(), &text, sampledRun(t)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", `
import sys
from mrm_trace.parser.perf_script_parser import parse_perf_script
rows = [(r["timestamp_ns"], r["address"], r["op_type"], r["thread_id"], r["cpu_id"])
    for r in parse_perf_script(sys.stdin, "r")]
assert rows == [(1795287058806341525, 0x7f0000001000, "load", 77, 1),
    (1795287059000000007, 0x7f0000002000, "load", 78, 0)], rows
`)
	cmd.Stdin = &text
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
