package config

import (
	"fmt"
	"strconv"
	"strings"
)

func sinkOptions() []option {
	return []option{
		{name: "sink", form: "unix:PATH|fd:N|-", modifies: Activations,
			help: "hand what is recorded to a consumer as well, as it is written: one that listens on a socket, a " +
				"descriptor, or standard output where the program's text goes elsewhere (run --prompts FILE " +
				"--results FILE). One that does not read holds the recording up",
			field: parsed(func(t *Tap) *string { return &t.Sink }, parseSink)},
	}
}

func parseSink(s string) (string, error) {
	kind, rest, _ := strings.Cut(s, ":")
	n, err := strconv.Atoi(rest)
	switch {
	case s == "-", kind == "unix" && rest != "":
	case kind == "fd" && err == nil && n > 2:
	case kind == "fd" && err == nil:
		return "", fmt.Errorf(
			"sink %q: descriptors 0 to 2 are the program's: open another one, such as fd:3 with 3>file", s)
	default:
		return "", fmt.Errorf("sink %q: write unix:PATH, fd:N or -", s)
	}
	return s, nil
}
