//go:build linux

package session

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/collect"
)

func version(v string) string {
	if v == "" {
		return ""
	}
	return v + " "
}

// whyNothing is why no run directory was made, as far as the processes with the tap have shown it.
func whyNothing(f collect.Found, ggml string, exit collect.Exit) string {
	switch {
	case f.OtherGGML:
		return "the program's ggml " + version(ggml) +
			"has other structures than the one that llamatap was built for; " +
			"build llamatap for it (make LLAMA_PREFIX=…)"
	case f.NoMemory:
		return "the program's address space has no room for the shared memory; raise its limit (ulimit -v), or " +
			"lower --tap-memory"
	case f.Recorded:
		return "the program computed no graph of a llama.cpp context"
	case exit.Signal != 0:
		return unix.SignalName(exit.Signal) + " ended the program before it computed anything"
	case f.Llama:
		return "llama.cpp was loaded, and no call of it came through the tap: the program made no context, or has " +
			"llama.cpp linked into it statically"
	case f.Tap:
		return "the program did not load llama.cpp as a shared library"
	}
	return "the program did not load the tap: its loader ignores LD_PRELOAD, as that of a static or privileged " +
		"program does"
}

// unknown is the evidence that goes with structures.
func unknown(layouts []string) string {
	var parts []string
	for _, name := range layouts {
		switch name {
		case "llama_batch":
			parts = append(parts, "the sequences that it gave to llama_decode are")
		case "llama_context_params":
			parts = append(parts, "its choice of flash attention is")
		}
	}
	return strings.Join(parts, ", and ")
}
