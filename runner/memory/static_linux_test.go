package memory

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// tool runs a tool, such as those of the compiler.
func tool(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	said, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, said)
	}
	return said
}

// A variable is what nm says of one.
type variable struct {
	addr, size uint64
	name       string
}

// variables asks nm which variables a file names, by address. Of those at the same address the first name counts.
func variables(t *testing.T, args ...string) (all []variable) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(tool(t, "nm", append([]string{"-S", "--defined-only"}, args...)...)))
	for lines.Scan() {
		var v variable
		var kind string
		if n, _ := fmt.Sscanf(lines.Text(), "%x %x %s %s", &v.addr, &v.size, &kind, &v.name); n == 4 &&
			strings.ContainsAny(kind, "bBdDrRvVuG") && v.size > 0 {
			v.name, _, _ = strings.Cut(v.name, "@")
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b variable) int {
		return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.name, b.name))
	})
	return all
}

// holding are the names that nm has for an address, of any symbol that holds it.
func holding(all []variable, addr uint64) (names []string) {
	for _, v := range all {
		if addr >= v.addr && addr < v.addr+v.size {
			names = append(names, v.name)
		}
	}
	return names
}

// find is the variable of a name.
func find(t *testing.T, all []variable, name string) variable {
	t.Helper()
	i := slices.IndexFunc(all, func(v variable) bool { return v.name == name })
	if i < 0 {
		t.Fatalf("nm names no %s", name)
	}
	return all[i]
}

// TestRecordNamesVariables: page by page, variables and constants of a program and of its library are named as nm
// names them, and lie in the static data of their file: with addresses that move and that do not, with the heap
// right after them, with symbols in a file of their own, and with those alone that a library needs to be linked.
func TestRecordNamesVariables(t *testing.T) {
	cc := testenv.NeedCC(t)
	data := filepath.Join(testenv.Root(t), "runner", "memory", "testdata")
	type build struct {
		name, strip   string
		flags, before []string
	}
	for _, c := range testenv.Brief([]build{
		{"moving", "", []string{"-fPIE", "-pie"}, nil},
		{"fixed", "", []string{"-fno-pie", "-no-pie"}, nil},
		{"heap beside", "", []string{"-fPIE", "-pie"}, []string{"setarch", "-R"}},
		{"one segment less", "", []string{"-fPIE", "-pie", "-Wl,-z,noseparate-code"}, nil},
		{"symbols apart", "debug", []string{"-fPIE", "-pie"}, nil},
		{"stripped", "all", []string{"-fPIE", "-pie"}, nil},
	}, 1) {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			program, library := filepath.Join(dir, "arrays"), filepath.Join(dir, "libshelf.so")
			tool(t, cc, "-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,--build-id=none", "-o",
				library, filepath.Join(data, "shelf.c"))
			tool(t, cc, slices.Concat([]string{"-std=gnu11", "-O1", "-Wall", "-Werror"}, c.flags,
				[]string{"-o", program, filepath.Join(data, "arrays.c"), library, "-Wl,-rpath," + dir})...)
			own, others := variables(t, program), variables(t, library)
			switch c.strip {
			case "debug":
				for _, file := range []string{program, library} {
					tool(t, "objcopy", "--only-keep-debug", file, file+".debug")
					tool(t, "objcopy", "--strip-all", "--add-gnu-debuglink="+file+".debug", file)
				}
			case "all":
				tool(t, "strip", program, library)
				others = variables(t, "-D", library)
			}
			if c.before != nil {
				if _, err := exec.LookPath(c.before[0]); err != nil {
					testenv.Beyond(t, "setarch", err.Error())
				}
			}
			line := append(slices.Clone(c.before), program)
			var said bytes.Buffer
			cmd := exec.Command(line[0], line[1:]...)
			cmd.Stdout = &said
			result, err := Record(context.Background(), Options{Choices: [][]string{{"faults"}}, Command: cmd,
				Out: t.TempDir()})
			allowed(t, err)
			<-result.Ended
			if code := result.Exit().ExitCode(); code != 7 || result.Use.Lossy {
				t.Fatalf("status %d, %+v", code, result.Use)
			}
			var pid int64
			var small, shelf uint64
			if _, err := fmt.Sscanf(said.String(), "%d %x %x", &pid, &small, &shelf); err != nil {
				t.Fatal(err)
			}
			rows := staticRows(t, result.Dir)
			checkVariables(t, rows, library, others, shelf-find(t, others, "shelf_values").addr,
				map[string]int{"shelf_zeros": 30, "shelf_values": 10, "shelf_constants": -1})
			if c.strip != "all" {
				bias := small - find(t, own, "small_value").addr
				checkVariables(t, rows, program, own, bias,
					map[string]int{"plain_zeros": 40, "plain_values": 24, "plain_constants": -1, "own_zeros": 20})
				if (bias == 0) != (c.name == "fixed") {
					t.Errorf("it lies %x higher than in its file", bias)
				}
				checkVariables(t, rows, library, others, shelf-find(t, others, "shelf_values").addr,
					map[string]int{"shelf_hidden": 12})
			}
			for _, r := range rows {
				if r.pid != pid {
					t.Errorf("%+v: the program is process %d", r, pid)
				}
			}
		})
	}
}

// A staticRow is a row of a trace, with the region that it names.
type staticRow struct {
	addr             uint64
	pid              int64
	kind, name, file string
	symbol           string
}

// staticRows reads a trace with the regions that it names.
func staticRows(t *testing.T, dir string) (rows []staticRow) {
	t.Helper()
	regions := columns(t, filepath.Join(dir, rundir.RegionsName), "region_id", "region_type", "name", "start_addr",
		"end_addr", "pid")
	byID := map[any]int{}
	for i, id := range regions["region_id"] {
		byID[id] = i
	}
	trace := columns(t, filepath.Join(dir, rundir.TraceName), "addr", "pid", "region_id", "region_type", "data_symbol",
		"symbol")
	for i := range trace["addr"] {
		row := staticRow{addr: uint64(trace["addr"][i].(int64)), pid: trace["pid"][i].(int64),
			kind: trace["region_type"][i].(string), name: trace["data_symbol"][i].(string),
			symbol: trace["symbol"][i].(string)}
		if at, ok := byID[trace["region_id"][i]]; ok {
			row.file = regions["name"][at].(string)
			if regions["region_type"][at] != row.kind || regions["pid"][at] != row.pid ||
				row.addr < uint64(regions["start_addr"][at].(int64)) ||
				row.addr >= uint64(regions["end_addr"][at].(int64)) {
				t.Errorf("%+v lies in region %v of process %v", row, trace["region_id"][i], regions["pid"][at])
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// checkVariables demands that every row in an object's variables has its name, none else has one of them, and that so
// many pages of some were recorded, -1: any.
func checkVariables(t *testing.T, rows []staticRow, file string, all []variable, bias uint64, want map[string]int) {
	t.Helper()
	pages := map[string]map[uint64]bool{}
	for _, r := range rows {
		names := holding(all, r.addr-bias)
		if len(names) == 0 && (r.file != file || r.name == "") {
			continue
		}
		if !slices.Contains(names, r.name) || r.file != file || r.kind != "static_data" && r.kind != "code" {
			t.Errorf("%+v, nm says %q of %s", r, names, file)
		}
		if pages[r.name] == nil {
			pages[r.name] = map[uint64]bool{}
		}
		pages[r.name][r.addr>>12] = true
	}
	for name, n := range want {
		if v := find(t, all, name); n >= 0 && len(pages[name]) != n || len(pages[name]) == 0 || v.size == 0 {
			t.Errorf("%d pages of %s were recorded", len(pages[name]), name)
		}
	}
}
