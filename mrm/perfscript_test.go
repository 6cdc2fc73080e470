package mrm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/perfscript"
	"github.com/llamatap/llamatap/store/table"
)

// TestPerfScript: what is written is read by our reader of perf's text as the same samples, the ledger's rows and pages left out.
func TestPerfScript(t *testing.T) {
	dir := t.TempDir()
	schema := table.Schema{Columns: []table.Column{
		{Name: "collector", Kind: table.Text, Null: true}, {Name: "ts_ns", Kind: table.Int64, Null: true}, {Name: "tid", Kind: table.Int32, Null: true},
		{Name: "weight", Kind: table.Uint64, Null: true}, {Name: "op", Kind: table.Text, Null: true}, {Name: "addr", Kind: table.Uint64, Null: true},
	}, Metadata: [][2]string{{table.VersionKey, table.Version}}}
	file, err := os.Create(filepath.Join(dir, memtrace.TraceName))
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
	var text bytes.Buffer
	if err := writePerfScript(context.Background(), &text, dir); err != nil {
		t.Fatal(err)
	}
	in, err := perfscript.NewText(bytes.NewReader(text.Bytes()), perfscript.Options{Fields: "comm,tid,time,period,event,addr"})
	if err != nil {
		t.Fatal(err)
	}
	want := []memtrace.Access{
		{TimeNS: 1795287058806341525, TID: 77, Weight: 10007, Op: memtrace.OpRead, Addr: 0x7f0000001000, Collector: memtrace.CollectorPerf},
		{TimeNS: 1795287058806341526, TID: 77, Weight: 10007, Op: memtrace.OpWrite, Addr: 0xffff800000001000, Collector: memtrace.CollectorPerf},
		{TimeNS: 1795287059000000007, TID: 78, Weight: 1, Addr: 0x7f0000002000, Collector: memtrace.CollectorFault},
	}
	for i := range want {
		var got memtrace.Access
		if err := in.Next(&got); err != nil {
			t.Fatalf("sample %d: %v\n%s", i, err, text.String())
		}
		if got.CPU, got.PID = 0, 0; got != want[i] {
			t.Errorf("sample %d is %+v, want %+v", i, got, want[i])
		}
	}
	var none memtrace.Access
	if err := in.Next(&none); err != io.EOF || in.Stats().Bad > 0 {
		t.Errorf("behind the last: %v, %+v", err, in.Stats())
	}
}
