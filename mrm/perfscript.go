package mrm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// PerfScriptName is the file of samples in the text form of perf script, in raw/.
const PerfScriptName = "perf_script.txt"

// sampledColumns are those of the table of accesses that the text is made of.
var sampledColumns = []string{"collector", "ts_ns", "tid", "weight", "op", "addr"}

// perfEvents are the events that perf names what collectors tell by, with loads and stores apart where it does.
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

// sampled tells whether a run has samples that perf could have taken.
func sampled(used []string) bool {
	for _, name := range used {
		if perfEvents[name] != nil {
			return true
		}
	}
	return false
}

// writePerfScript writes the samples of a run as perf script -F comm,tid,time,period,event,addr prints them. The program is called model, and
// times are Unix time.
func writePerfScript(ctx context.Context, out io.Writer, dir string) error {
	t, err := table.Open(dir, memtrace.TraceName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Close()
	scan, err := t.Scan(sampledColumns, table.ScanOptions{})
	if err != nil {
		return err
	}
	defer scan.Close()
	buffered := bufio.NewWriterSize(out, 1<<16)
	fmt.Fprintln(buffered, "# samples of trace.parquet, as perf script --ns -F comm,tid,time,period,event,addr prints them; times are Unix time")
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
	fmt.Fprintf(out, "model %7d %5d.%09d: %10d %s: %16x\n", number(tid), at.Ints[row]/1e9, at.Ints[row]%1e9, max(number(weight), 1), event(kind), uint64(addr.Ints[row]))
}
