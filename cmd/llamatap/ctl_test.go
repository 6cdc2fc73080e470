//go:build linux

package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/runner/session/control"
)

func TestParseCtl(t *testing.T) {
	for line, want := range map[string]control.Request{
		"R status":                           {Command: "status"},
		"R off":                              {Command: "off"},
		"R tap l_out* for 20 tokens":         {Command: "tap", Tensors: []string{"l_out*"}, Tokens: 20},
		"R tap a,b c layers 0-3":             {Command: "tap", Tensors: []string{"a", "b", "c"}, Layers: "0-3"},
		"R tap a for 1 token layers 2":       {Command: "tap", Tensors: []string{"a"}, Tokens: 1, Layers: "2"},
		"R tap points z,resid_post layers 1": {Command: "tap", Points: []string{"z", "resid_post"}, Layers: "1"},
		"R level verbose":                    {Command: "level", Level: "VERBOSE"},
		"R level off":                        {Command: "level", Level: "off"},
		"R disable":                          {Command: "disable"},
		"R tap result_output layers 0-1023":  {Command: "tap", Tensors: []string{"result_output"}, Layers: "0-1023"},
	} {
		if got, err := ctlRequest(strings.Fields(line)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
	for line, want := range map[string]string{
		"":                         "RUNDIR",
		"R":                        "RUNDIR",
		"R dance":                  `"dance" | status, tap, off, on, flush, stop`,
		"R tap":                    "tap | tensors",
		"R off l_out":              "tensors",
		"R tap l_out for":          "'for'",
		"R tap l_out for 20":       "'for'",
		"R tap l_out for 20 bytes": "'for'",
		"R tap l_out for no token": "number",
		"R tap l_out for 0 tokens": "number",
		"R tap points":             "'points'",
		"R tap points resid_pots":  `"resid_pots" | --points`,
		"R on points z":            "points",
		"R tap l_out layers":       "'layers'",
		"R tap l_out layers x":     `"x"`,
		"R tap for 20 tokens":      "tap | tensors",
		"R tap a for 2 tokens b":   `"b"`,
		"R tap a,,b":               "empty",
		"R level":                  "level | MINIMAL, DETAILED, VERBOSE, off",
		"R level loud":             `"LOUD" | MINIMAL`,
		"R enable VERBOSE":         "tensors",
		"R --yaml status":          "--yaml",
	} {
		refused(t, "ctl "+line, 2, want)
	}
}
