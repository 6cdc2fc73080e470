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
		"R status":                          {Command: "status"},
		"R off":                             {Command: "off"},
		"R tap l_out* for 20 tokens":        {Command: "tap", Tensors: []string{"l_out*"}, Tokens: 20},
		"R tap a,b c layers 0-3":            {Command: "tap", Tensors: []string{"a", "b", "c"}, Layers: "0-3"},
		"R tap a for 1 token layers 2":      {Command: "tap", Tensors: []string{"a"}, Tokens: 1, Layers: "2"},
		"R level verbose":                   {Command: "level", Level: "VERBOSE"},
		"R level off":                       {Command: "level", Level: "off"},
		"R disable":                         {Command: "disable"},
		"R tap result_output layers 0-1023": {Command: "tap", Tensors: []string{"result_output"}, Layers: "0-1023"},
	} {
		if got, err := ctlRequest(strings.Fields(line)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
	for line, want := range map[string]string{
		"":                         "give RUNDIR and a command",
		"R":                        "give RUNDIR and a command",
		"R dance":                  `unknown command "dance": there are status, tap, off, on, flush, stop`,
		"R tap":                    "tap needs tensors",
		"R off l_out":              "takes no tensors",
		"R tap l_out for":          "'for' needs a number",
		"R tap l_out for 20":       "'for' needs a number",
		"R tap l_out for 20 bytes": "'for' needs a number",
		"R tap l_out for no token": "whole number",
		"R tap l_out for 0 tokens": "whole number",
		"R tap l_out layers":       "'layers' needs a list",
		"R tap l_out layers x":     `"x" is neither a layer`,
		"R tap for 20 tokens":      "tap needs tensors",
		"R tap a for 2 tokens b":   `unexpected "b"`,
		"R tap a,,b":               "glob is empty",
		"R level":                  "level needs one of MINIMAL, DETAILED, VERBOSE, off",
		"R level loud":             `level "LOUD": give one of MINIMAL`,
		"R enable VERBOSE":         "takes no tensors",
		"R --yaml status":          "unknown flag --yaml",
	} {
		refused(t, "ctl "+line, 2, want)
	}
}
