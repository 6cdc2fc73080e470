package perf

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/llamatap/llamatap/memtrace"
)

// TestTracepointFormat: fields lie where the kernel says.
func TestTracepointFormat(t *testing.T) {
	tree := func(format string) fstest.MapFS {
		return fstest.MapFS{
			"events/exceptions/x/id": {Data: []byte("147\n")}, "events/exceptions/x/format": {Data: []byte(format)},
		}
	}
	const format = "name: x\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:unsigned " +
		"long address;\toffset:8;\tsize:8;\tsigned:0;\n" +
		"\tfield:unsigned long ip;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:unsigned long error_code;\toffset:24;\tsize:8;\tsigned:0;\n"
	p, err := readTracepoint(tree(format), "x")
	if err != nil || p != (tracepoint{147, 8, 16, 24}) {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", strings.Replace(format, "size:8;\tsigned:0;\n\tfield:unsigned long ip",
		"size:4;\n\tfield:unsigned long ip", 1)} {
		if p, err := readTracepoint(tree(bad), "x"); err == nil {
			t.Errorf("%q: %+v", bad, p)
		}
	}
	if _, err := readTracepoint(tree(format), "y"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	var a memtrace.Access
	if p.access(make([]byte, 31), &a) {
		t.Error("raw data that are too short are taken")
	}
}
