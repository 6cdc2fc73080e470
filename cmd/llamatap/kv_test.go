package main

import (
	"errors"
	"strings"
	"testing"
)

// TestKVErrors holds the messages for wrong use of kv, with their exit status.
func TestKVErrors(t *testing.T) {
	t.Setenv("LLAMATAP_OUT", "/no/runs")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "there is no run below /no/runs: give a run directory"},
		{"x --by week", 2, `--by "week": use sequence, layer or time`},
		{"x --format xml", 2, `--format "xml": use text, json, csv`},
		{"x --width -3", 2, "--width -3: use 1 to 10000 columns, or 0 for those of the terminal"},
		{"/no/such/run", 1, "/no/such/run: there is no such file or folder: give a run directory or a .parquet file"},
	} {
		err := runKV(strings.Fields(c.args))
		var status exitStatus
		if !errors.As(err, &status) {
			status = exitStatus{Code: 1, Err: err}
		}
		if err == nil || status.Code != c.code || status.Err.Error() != c.want {
			t.Errorf("kv %s: %d, %v; want %d, %s", c.args, status.Code, err, c.code, c.want)
		}
	}
}
