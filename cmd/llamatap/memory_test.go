package main

import (
	"errors"
	"strings"
	"testing"
)

// TestMemoryErrors holds the messages for wrong use of memory, with their exit status.
func TestMemoryErrors(t *testing.T) {
	t.Setenv("LLAMATAP_OUT", "/no/runs")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "there is no run below /no/runs: give a run directory"},
		{"x --by week", 2, `--by "week": use type, region, step, time, symbol, data_symbol, process or phase`},
		{"x --format xml", 2, `--format "xml": use text, json, csv`},
		{"x --top -3", 2, "--top -3: use 0 or more regions"},
		{"x --windows 1ms,now", 2, `--windows "1ms,now": "now" is no length of time: use such as 1ms,100ms,1s`},
		{"x --windows -1s", 2, `--windows "-1s": "-1s" is no length of time: use such as 1ms,100ms,1s`},
		{"x --windows " + strings.Repeat("1s,", 16) + "2s", 2, "--windows: 17 windows, at most 16 can be measured at once"},
		{"/no/such/run", 1, "/no/such/run: there is no such folder: give a run directory"},
	} {
		err := runMemory(strings.Fields(c.args))
		var status exitStatus
		if !errors.As(err, &status) {
			status = exitStatus{Code: 1, Err: err}
		}
		if err == nil || status.Code != c.code || status.Err.Error() != c.want {
			t.Errorf("memory %s: %d, %v; want %d, %s", c.args, status.Code, err, c.code, c.want)
		}
	}
}
