package blockio

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// compileC makes a program of a main function on requests.h, and returns what it writes.
func compileC(t *testing.T, main string) string {
	t.Helper()
	const head = `#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <linux/types.h>
#include "requests.h"
`
	dir := t.TempDir()
	source, program := filepath.Join(dir, "test.c"), filepath.Join(dir, "test")
	if err := os.WriteFile(source, []byte(head+main), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testenv.NeedCC(t), "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror",
		"-Wno-unknown-pragmas", "-Wno-sign-compare",
		"-I.", "-I../bpf/include", "-o", program, source).CombinedOutput()
	if err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	got, err := exec.Command(program).Output()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, got)
	}
	return string(got)
}

// TestLayout: the reader's layout is that of the header.
func TestLayout(t *testing.T) {
	want := map[string]int{
		"offsetof(struct block_table, slots)": slotsAt, "offsetof(struct block_table, rows)": rowsAt,
		"offsetof(struct block_table, disks)": disksAt,
		"offsetof(struct block_table, lost)":  lostAt, "offsetof(struct block_table, epoch)": epochAt,
		"sizeof(struct block_table)": tableSize, "sizeof(struct block_slot)": slotSize,
		"sizeof(struct block_row)":  rowSize,
		"sizeof(struct block_disk)": diskSize, "sizeof(struct block_counts)": countsSize,
		"offsetof(struct block_counts, merges)": oddsAt, "offsetof(struct block_counts, untimed)": oddsAt + 40,
		"offsetof(struct block_counts, queue)": queueAt, "offsetof(struct block_counts, latency)": latencyAt,
		"offsetof(struct block_row, cgroup)": 24, "offsetof(struct block_row, comm)": 32,
		"offsetof(struct block_disk, deepest)":  16,
		"offsetof(struct block_slot, issue_ns)": 8, "offsetof(struct block_slot, bytes)": 16,
		"offsetof(struct block_slot, row)":  20,
		"offsetof(struct block_slot, disk)": 22, "sizeof(struct block_known)": 64,
		"BLOCK_WAYS * sizeof(struct block_slot)": 64,
		"BLOCK_SLOTS":                            slotCount, "BLOCK_DISKS": diskCount, "BLOCK_FIXED": fixedRows,
		"BLOCK_ROWS":  allRows,
		"BLOCK_OPS":   opCount,
		"BLOCK_SIZES": sizeCount, "BLOCK_LOSTS": lostCount, "BLOCK_RETIRED": retired, "BLOCK_READY": ready,
	}
	var c strings.Builder
	c.WriteString("int main(void)\n{\n")
	for what := range want {
		fmt.Fprintf(&c, "\tprintf(\"%%s=%%d\\n\", %q, (int)(%s));\n", what, what)
	}
	for line := range strings.Lines(compileC(t, c.String()+"}\n")) {
		what, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if value != fmt.Sprint(want[what]) {
			t.Errorf("%s is %s in C, %d in Go", what, value, want[what])
		}
	}
}
