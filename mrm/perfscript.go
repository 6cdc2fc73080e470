package mrm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// perfScriptName is the file of samples in the text form of perf script, in raw/.
const perfScriptName = "perf_script.txt"

// sampledColumns are those of the table of accesses that the text is made of.
var sampledColumns = []string{"collector", "ts_ns", "tid", "weight", "op", "addr", "data_symbol"}

// sampledCPU is one that tables of llamatap 1.0 do not have.
const sampledCPU = "cpu"

// perfEvents are perf's names of the events of collectors, with loads and stores apart where it does.
var perfEvents = map[string]func(op string) string{
	memtrace.CollectorPerf.String(): func(op string) string {
		if op == memtrace.OpWrite.String() {
			return "cpu/mem-stores/P"
		}
		return "cpu/mem-loads,ldlat=30/P"
	},
	memtrace.CollectorIBS.String():   func(string) string { return "ibs_op//" },
	memtrace.CollectorSPE.String():   func(string) string { return "arm_spe_0//" },
	memtrace.CollectorFault.String(): func(string) string { return "page-faults" },
}

// writePerfScript writes the samples of a run as perf script -F comm,tid,cpu,time,period,event,addr,sym,dso prints
// them, which its consumers and mrm-trace's parser read. The program is called model, times are Unix time. What
// perf prints there without an instruction's address is the symbol and the file of the address of data.
func writePerfScript(ctx context.Context, out io.Writer, dir string) error {
	t, err := table.Open(dir, rundir.TraceName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Close()
	columns := sampledColumns
	if !slices.ContainsFunc(t.Files, func(r *table.Reader) bool { return !r.Has(sampledCPU) }) {
		columns = append(slices.Clone(columns), sampledCPU)
	}
	scan, err := t.Scan(columns, table.ScanOptions{})
	if err != nil {
		return err
	}
	defer scan.Close()
	buffered := bufio.NewWriterSize(out, 1<<16)
	fmt.Fprintln(buffered, "# samples of trace.parquet, as perf script --ns -F "+
		"comm,tid,cpu,time,period,event,addr,sym,dso prints them; times are Unix time")
	for {
		rows, err := scan.Next()
		if errors.Is(err, io.EOF) {
			return buffered.Flush()
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		for row := range rows.N {
			perfLine(buffered, rows.Columns, row)
		}
	}
}

// perfLine writes a row, if it is a sample with an address.
func perfLine(out io.Writer, columns []*table.Vector, row int) {
	collector, at, tid, weight, op, addr := columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]
	if collector.Null(row) || at.Null(row) || addr.Null(row) {
		return
	}
	event := perfEvents[collector.Text(row)]
	if event == nil {
		return
	}
	number := func(v *table.Vector) int64 {
		if v.Null(row) {
			return 0
		}
		return v.Ints[row]
	}
	kind := ""
	if !op.Null(row) {
		kind = op.Text(row)
	}
	cpu, symbol := "", "[unknown]"
	if len(columns) > 7 && !columns[7].Null(row) {
		cpu = fmt.Sprintf(" [%03d]", columns[7].Ints[row])
	}
	if !columns[6].Null(row) {
		symbol = columns[6].Text(row)
	}
	fmt.Fprintf(out, "model %7d%s %5d.%09d: %10d %s: %16x %s ([unknown])\n",
		number(tid), cpu, at.Ints[row]/1e9, at.Ints[row]%1e9, max(number(weight), 1), event(kind),
		uint64(addr.Ints[row]), symbol)
}
