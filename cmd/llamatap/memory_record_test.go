package main

import (
	"errors"
	"strings"
	"testing"
)

// TestMemoryRecordErrors holds the messages for wrong use of memory record and import, with their exit status.
func TestMemoryRecordErrors(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"record", "give a program behind --, or a process with -p, one of the two"},
		{"record --", "no program behind --: write llamatap memory record -- PROGRAM ARGUMENTS"},
		{"record true", `unexpected argument "true": a program stands behind --`},
		{"record -p 1 -- true", "give a program behind --, or a process with -p, one of the two"},
		{"record -p -4", "-p -4 is no process id"},
		{"record --samples perv -- true", `--samples: unknown collector of samples "perv": use perf, faults, pages`},
		{"record --samples faults,faults -- true", `--samples: collector of samples "faults" is named twice: name it once`},
		{"record --samples faults --period 5 -- true", "--period 5 is that of perf, and --samples does not name it: write --samples perf:faults, or drop it"},
		{"record --ring 3M -- true", `--ring: samples ring "3M": give a power of two from 8K to 1G, such as 1M, or 0`},
		{"record -d -1 -- true", "-d -1: give seconds from 0 to 1000000"},
		{"record --interval 0.01 -- true", "--interval 0.01: give seconds from 0.05 to 86400"},
		{"import", "no file: give texts of perf script, or perf.data; 'llamatap memory import --help' shows how"},
		{"mark", "give one name: llamatap memory mark NAME"},
		{"mark a b", "give one name: llamatap memory mark NAME"},
		{"mark a\tb", `invalid marker: name "a\tb": use 1 to 64 bytes of printable text, such as prefill`},
	} {
		err := runMemory(strings.Split(c.args, " "))
		var status exitStatus
		if !errors.As(err, &status) || status.Code != 2 || status.Err.Error() != c.want {
			t.Errorf("memory %s: %v; want %s", c.args, err, c.want)
		}
	}
}
