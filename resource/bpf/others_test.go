package bpf

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	onTracepoint = regexp.MustCompile(`(?ms)^SEC\("tracepoint/([^"]*)"\)\nint [^\n]*\n\{\n(.*?)^\}$`)
	returned     = regexp.MustCompile(`return\b[^;]*;`)
)

// TestForOthersToo: no program on a tracepoint takes its events away from those who sample them with perf.
func TestForOthersToo(t *testing.T) {
	programs := 0
	for _, pattern := range []string{"../*/*.c", "../*/*.h"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Count(string(text), `SEC("tracepoint/`); all != len(onTracepoint.FindAll(text, -1)) {
				t.Errorf("%s: of %d programs on tracepoints not all are found", file, all)
			}
			for _, program := range onTracepoint.FindAllStringSubmatch(string(text), -1) {
				programs++
				for _, r := range returned.FindAllString(program[2], -1) {
					// which returns that
					if r != "return FOR_OTHERS_TOO;" && !strings.HasPrefix(r, "return at_file_plain(") {
						t.Errorf("%s: the program on %s says %q", file, program[1], r)
					}
				}
			}
		}
	}
	if programs < 20 {
		t.Errorf("%d programs were found", programs)
	}
}
