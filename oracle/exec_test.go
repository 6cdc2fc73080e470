//go:build linux

package oracle

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// ids are the numbers that greedy printed.
func printedIDs(t *testing.T, text string) []int32 {
	t.Helper()
	var ids []int32
	for _, line := range strings.Fields(text) {
		var id int32
		if _, err := fmt.Sscan(line, &id); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		ids = append(ids, id)
	}
	return ids
}

// plain runs a program without the tap.
func plain(t *testing.T, args ...string) outcome {
	t.Helper()
	return llamatap(t, append([]string{"exec", "--"}, args...)...).good(t)
}

// execOf is "llamatap exec" of some program, recording.
func execOf(t *testing.T, tap []string, args ...string) outcome {
	t.Helper()
	return llamatap(t, slices.Concat([]string{"exec"}, tap, []string{"--"}, args)...)
}

// greedyRows are the rows that greedy decodes when it prints these tokens.
func greedyRows(printed []int32) []int32 {
	return append([]int32{1, 5, 6, 7}, printed[:len(printed)-1]...)
}

// TestOwnProgram taps a program of somebody's own, linked with libllama: its output stays, each token has its
// sequences and its position, and the metadata says which llama.cpp it was.
func TestOwnProgram(t *testing.T) {
	program, backends := testenv.Greedy(t, false)
	args := []string{program, testenv.Model(t), backends, "6"}
	want := plain(t, args...).stdout
	c := execOf(t, everything, args...).good(t).capture(t).sealed(t)
	if c.stdout != want {
		t.Errorf("prints\n%s, without the tap\n%s", c.stdout, want)
	}
	wantIDs(t, "own program", c.ids(), greedyRows(printedIDs(t, want)))
	for i, token := range c.tokens {
		both := slices.Equal(token.Seqs, []int32{0, 1})
		if token.Seq == nil || *token.Seq != 0 || both != (i == 0) || token.Pos != int32(i) {
			t.Errorf("token %d: %+v", i, token)
		}
	}
	if c.meta.Llama.Version == "" || c.meta.Llama.GGML == "" || c.meta.Llama.Prefix != "" {
		t.Errorf("metadata says %+v of the program's llama.cpp", c.meta.Llama)
	}
	for _, name := range []string{"entry_points_missing", "structures_unknown"} {
		if extra := c.meta.Extra[name]; extra != nil {
			t.Errorf("%s: %s", name, extra)
		}
	}
}

// TestScript: of the programs that a script starts, the first that computes is recorded, the others are counted.
func TestScript(t *testing.T) {
	program, backends := testenv.Greedy(t, false)
	greedy := fmt.Sprintf("'%s' '%s' '%s'", program, testenv.Model(t), backends)
	script := filepath.Join(t.TempDir(), "script")
	// The first one fails before it has a context.
	text := fmt.Sprintf("#!/bin/sh\ncat /dev/null\n'%s' /nowhere '%s' 1 2>/dev/null\n%s 5\n%s 2 >/dev/null 2>&1\n"+
		"exit 7\n", program, backends, greedy, greedy)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	o := execOf(t, residual, script)
	if o.status != 7 {
		t.Errorf("status %d, want the script's 7\n%s", o.status, o.stderr)
	}
	c := o.capture(t).sealed(t)
	wantIDs(t, "script", c.ids(), greedyRows(printedIDs(t, c.stdout)))
	if got := string(c.meta.Extra["processes_not_recorded"]); got != "1" {
		t.Errorf("processes_not_recorded: %q, want 1", got)
	}
	if !strings.Contains(o.stderr, "1 further process") {
		t.Errorf("the summary does not mention the other process\n%s", o.stderr)
	}
}

// sameToken compares two tokens of different runs.
func sameToken(a, b rundir.TokenRecord) bool { return reflect.DeepEqual(a, b) }

// TestLibrary: what the tap keeps per thread is little, for it is taken from the stack of each of the program's
// threads. What only llamatap bench needs is not in the library.
func TestLibrary(t *testing.T) {
	object, err := elf.Open(filepath.Join(filepath.Dir(testenv.NeedBinary(t)), "libllamatap.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	for _, p := range object.Progs {
		if p.Type == elf.PT_TLS && p.Memsz > 256 {
			t.Errorf("%d bytes per thread", p.Memsz)
		}
	}
	symbols, err := object.Symbols()
	if err != nil || !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "tap_detach" }) {
		t.Fatalf("%d symbols, %v", len(symbols), err)
	}
	for _, s := range symbols {
		if strings.Contains(s.Name, "tap_turn") && elf.ST_TYPE(s.Info) != elf.STT_FILE {
			t.Errorf("%s is in the library", s.Name)
		}
	}
}
