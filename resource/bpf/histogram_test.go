package bpf_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestHistogramOfC: the header that BPF programs use counts as resource.Slot does.
func TestHistogramOfC(t *testing.T) {
	var values []uint64
	for bit := range 64 {
		v := uint64(1) << bit
		values = append(values, v-1, v, v+1, v|v>>1)
	}
	values = append(values, math.MaxUint64)
	var c, want strings.Builder
	c.WriteString("#include <stdio.h>\n#include \"histogram.h\"\nint main(void)\n{\n")
	for _, v := range values {
		fmt.Fprintf(&c, "\tprintf(\"%%u\\n\", histogram_slot(%dull));\n", v)
		fmt.Fprintln(&want, resource.Slot(v))
	}
	c.WriteString("}\n")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "slots.c"), filepath.Join(dir, "slots")
	if err := os.WriteFile(source, []byte(c.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testenv.NeedCC(t), "-Wall", "-Wextra", "-Werror", "-Iinclude", "-o", program,
		source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(program).Output()
	if err != nil || string(got) != want.String() {
		t.Errorf("%v; slots in C:\n%swant:\n%s", err, got, want.String())
	}
}
