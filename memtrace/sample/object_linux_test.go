package sample

import (
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

// built compiles a library with a variable that is not exported, and takes its symbols out into a file of their own.
// Both lie below a root.
func built(t *testing.T, root string, flags ...string) (library, debug string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "hidden.c")
	if err := os.WriteFile(source, []byte("static char kept[100] = {1};\nchar *whose(int i) { return &kept[i]; }\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "lib"), 0o700); err != nil {
		t.Fatal(err)
	}
	library = filepath.Join(root, "lib", "hidden.so")
	debug = library + ".debug"
	for _, line := range [][]string{
		append([]string{testenv.NeedCC(t), "-O1", "-shared", "-fPIC", "-o", library, source}, flags...),
		{"objcopy", "--only-keep-debug", library, debug},
		{"objcopy", "--strip-all", "--add-gnu-debuglink=" + debug, library},
	} {
		if said, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", line, err, said)
		}
	}
	return library, debug
}

// namesKept reports whether the variable of a built library is found.
func namesKept(t *testing.T, root string) bool {
	t.Helper()
	var all objects
	o := all.named(all.open(root, "/lib/hidden.so"))
	if len(o.segments) == 0 || o.code.at(valueOf(o.code, "whose"), 1) != "whose" {
		t.Fatalf("%+v: not read", o)
	}
	at := valueOf(o.data, "kept")
	return at != 0 && o.variable(at+99, 1) == "kept" && o.variable(at+100, 1) != "kept" &&
		o.variable(at+99, 2) != "kept"
}

func valueOf(s symbols, name string) uint64 {
	for _, one := range s.all {
		if one.name == name {
			return one.value
		}
	}
	return 0
}

// TestSeparateSymbols: the file with an object's symbols is found by the build ID and by the link, wherever it may
// lie, and that of another object is not taken.
func TestSeparateSymbols(t *testing.T) {
	move := func(t *testing.T, from string, to ...string) {
		path := filepath.Join(to...)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(from, path); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"sha1", "none"} {
		for _, c := range []struct {
			name  string
			place func(t *testing.T, root, library, debug string)
			want  bool
		}{
			{"beside it", func(*testing.T, string, string, string) {}, true},
			{"in .debug", func(t *testing.T, root, _,
				debug string) {
				move(t, debug, root, "lib", ".debug", "hidden.so.debug")
			}, true},
			{"as distributions have it", func(t *testing.T, root, _, debug string) {
				move(t, debug, root, "usr/lib/debug/lib", "hidden.so.debug")
			}, true},
			{"by its build ID", func(t *testing.T, root, library, debug string) {
				f, err := elf.Open(library)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if name := hex.EncodeToString(buildID(f)); name != "" {
					move(t, debug, root, "usr/lib/debug/.build-id", name[:2], name[2:]+".debug")
				}
			}, true},
			{"of another build", func(t *testing.T, root, _, debug string) {
				_, other := built(t, t.TempDir(), "-DOTHER", "-O2", "-g", "-Wl,--build-id="+id)
				move(t, other, debug)
			}, false},
			{"nowhere", func(t *testing.T, _, _, debug string) { os.Remove(debug) }, false},
			{"torn", func(t *testing.T, _, _, debug string) { os.Truncate(debug, 100) }, false},
		} {
			t.Run(id+" "+c.name, func(t *testing.T) {
				root := t.TempDir()
				library, debug := built(t, root, "-Wl,--build-id="+id)
				c.place(t, root, library, debug)
				if got := namesKept(t, root); got != c.want {
					t.Errorf("found: %v", got)
				}
			})
		}
	}
}

// TestObjectsOfNoELF: what is no ELF file has no names, devices and pipes are not opened, and a file that takes
// another's place is read anew.
func TestObjectsOfNoELF(t *testing.T) {
	var all objects
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("\x7fELF and then something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, "/dev/zero", "/no/such/file", "/", "/proc/self/maps"} {
		if o := all.named(all.open("", p)); len(o.segments) != 0 || o.function(0) != "" || o.variable(0, 1) != "" {
			t.Errorf("%s: %+v", p, o)
		}
	}
	all.renew("", path)
	if all.open("", path).stat.bytes == 0 {
		t.Error("not there any more")
	}
	library, _ := built(t, t.TempDir())
	if err := os.Rename(library, path); err != nil {
		t.Fatal(err)
	}
	all.renew("", path)
	if len(all.open("", path).segments) == 0 {
		t.Error("the new file was not read")
	}
}

// TestSymbolsLieInEachOther: the innermost symbol that holds all that is asked for counts, and of several for one
// place the longest, then the first by name.
func TestSymbolsLieInEachOther(t *testing.T) {
	s := newSymbols([]symbol{{100, 50, "outer"}, {110, 10, "inner"}, {110, 10, "alias"}, {110, 4, "part"},
		{300, 0, "label"}, {200, 8, "alone"}})
	for _, c := range []struct {
		at, size uint64
		want     string
	}{
		{99, 1, ""}, {100, 1, "outer"}, {110, 1, "alias"}, {119, 1, "alias"}, {120, 1, "outer"}, {118, 4, "outer"},
		{149, 1, "outer"}, {149, 2, ""}, {150, 1, ""},
		{200, 8, "alone"}, {200, 9, ""}, {204, 0, "alone"}, {300, 1, "label"}, {301, 1, ""},
	} {
		if got := s.at(c.at, c.size); got != c.want {
			t.Errorf("%d bytes at %d: %q, want %q", c.size, c.at, got, c.want)
		}
	}
}

// TestPlacesOfObjects: where an object lies follows from all of its mappings, though files' pages are shared by
// several segments (as lld lays them out); somebody who maps the whole file to read it does not confuse that, and
// zeros end where the object does.
func TestPlacesOfObjects(t *testing.T) {
	load := func(flags elf.ProgFlag, off, vaddr, filesz, memsz uint64) elf.ProgHeader {
		return elf.ProgHeader{Type: elf.PT_LOAD, Flags: flags, Off: off, Vaddr: vaddr, Filesz: filesz, Memsz: memsz}
	}
	o := &object{path: "/lib/o.so", read: true, segments: []elf.ProgHeader{
		load(elf.PF_R, 0, 0, 0x5d0, 0x5d0), load(elf.PF_R|elf.PF_X, 0x5d0, 0x15d0, 0x150, 0x150),
		load(elf.PF_R|elf.PF_W, 0x720, 0x2720, 0x1d0, 0x8e0), load(elf.PF_R|elf.PF_W, 0x8f0, 0x38f0, 0x40, 0x3000),
	}}
	o.data = newSymbols([]symbol{{0x100, 16, "constant"}, {0x2730, 8, "table"}, {0x38f8, 8, "value"},
		{0x3a00, 0x2000, "zeros"}})
	const base = 0x7f0000000000
	space := newSpace(1, &objects{files: map[string]*object{"/lib/o.so": o}})
	space.root = ""
	for _, m := range []memtrace.Mapping{
		{Start: 0x10000, End: 0x12000, Perms: "r--p", Path: o.path}, // a reader
		{Start: base, End: base + 0x7000, Perms: "r--p", Path: o.path},
		{Start: base + 0x1000, End: base + 0x2000, Perms: "r-xp", Path: o.path},
		{Start: base + 0x2000, End: base + 0x3000, Perms: "rw-p", Path: o.path},
		{Start: base + 0x3000, End: base + 0x4000, Perms: "rw-p", Path: o.path},
		{Start: base + 0x4000, End: base + 0x9000, Perms: "rw-p"}, // zeros, and what was mapped after them
	} {
		space.mapped(5, m)
	}
	for _, c := range []struct {
		addr uint64
		name string
		kind memtrace.RegionType
	}{
		{base + 0x104, "constant", memtrace.StaticData}, {base + 0x2730, "table", memtrace.StaticData},
		{base + 0x38f8, "value", memtrace.StaticData},
		{base + 0x3900, "", memtrace.StaticData}, {base + 0x3a00, "zeros", memtrace.StaticData},
		{base + 0x4000, "zeros", memtrace.StaticData}, {base + 0x59ff, "zeros", memtrace.StaticData},
		{base + 0x5a00, "", memtrace.StaticData}, {base + 0x7000, "", memtrace.Runtime},
		{base + 0x1600, "", memtrace.Code}, {0x10104, "", memtrace.StaticData}, {base + 0x9000, "", memtrace.Other},
	} {
		h := space.Map().Address(c.addr, 6)
		if got := space.Variable(c.addr, 1); got != c.name || h.Type() != c.kind || h.Type() == memtrace.StaticData &&
			h.Region.Name != o.path {
			t.Errorf("%x: %q in %v %+v, want %q in %v", c.addr, got, h.Type(), h.Region, c.name, c.kind)
		}
	}
}

// kernelRecord is a record of the kernel's.
func kernelRecord(kind uint32, pid, by uint32, ns uint64, set func(*perf.Record)) *perf.Record {
	r := &perf.Record{Type: kind, PID: pid, TID: pid, ParentPID: by, ParentTID: by, Sample: perf.Sample{Time: ns}}
	if set != nil {
		set(r)
	}
	return r
}

func mapping(start uint64, name string) func(*perf.Record) {
	return func(r *perf.Record) { r.Addr, r.Length, r.Prot, r.Name = start, 0x1000, 3, []byte(name) }
}

// TestSpacesFollowProcesses checks that events of processes are sorted by time whatever ring they come from: a child
// has its parent's memory until it becomes another program, an end is an end, and a number that is used again is
// another process.
func TestSpacesFollowProcesses(t *testing.T) {
	s := NewSpaces()
	const pid, child = 2000000001, 2000000002 // there are none
	for _, r := range []*perf.Record{         // the child's ring is read first
		kernelRecord(perf.RecordMmap2, child, 0, 45, mapping(0x5000, "/child")),
		kernelRecord(perf.RecordComm, child, 0, 40,
			func(r *perf.Record) { r.Misc, r.Name = commExec, []byte("other") }),
		kernelRecord(perf.RecordExit, child, pid, 60, nil),
		kernelRecord(perf.RecordMmap2, pid, 0, 10, mapping(0x1000, "//anon")),
		kernelRecord(perf.RecordFork, child, pid, 20, nil),
		kernelRecord(perf.RecordFork, pid, pid, 25, func(r *perf.Record) { r.TID = 7 }), // a thread
		kernelRecord(perf.RecordMmap2, pid, 0, 30, mapping(0x2000, "//anon")),
		kernelRecord(perf.RecordFork, child, pid, 70, nil),
	} {
		s.Observe(r)
	}
	s.Gather()
	look := func(pid int32) string {
		space := s.Of(pid)
		if space == nil {
			return "none"
		}
		var words []string
		for _, m := range space.Mapped() {
			words = append(words, fmt.Sprintf("%x", m.Start))
		}
		return space.Name + " " + strings.Join(words, " ")
	}
	for _, c := range []struct {
		ns           int64
		first, child string
	}{{5, "none", "none"}, {10, " 1000", "none"}, {20, " 1000", " 1000"}, {35, " 1000 2000", " 1000"},
		{40, " 1000 2000", "other "}, {50, " 1000 2000", "other 5000"}, {65, " 1000 2000", "other 5000"},
		{70, " 1000 2000", " 1000 2000"}} {
		s.Apply(c.ns)
		if a, b := look(pid), look(child); a != c.first || b != c.child {
			t.Errorf("at %d: %q and %q, want %q and %q", c.ns, a, b, c.first, c.child)
		}
	}
	var found []string
	for _, p := range s.Processes() {
		found = append(found, fmt.Sprintf("%d<%d %s %d-%d", p.PID-2000000000, max(p.Parent-2000000000, 0), p.Name,
			p.Begin, p.End))
	}
	if got := strings.Join(found, ", "); got != "1<0  0-0, 2<1 other 20-60, 2<1  70-0" {
		t.Errorf("%s", got)
	}
	s.Observe(kernelRecord(perf.RecordExit, child, pid, 80, nil))
	s.Observe(kernelRecord(perf.RecordExit, pid, 1, 90, nil))
	s.Gather()
	s.Apply(100)
	if s.Forget(85); look(child) != "none" || look(pid) == "none" {
		t.Errorf("%q, %q", look(child), look(pid))
	}
	if s.Forget(1000); look(pid) == "none" {
		t.Error("the first process was forgotten")
	}
}

// TestRunning checks that processes count as running as soon as their events are gathered, before they are applied.
func TestRunning(t *testing.T) {
	s := NewSpaces()
	const pid = 2000000001
	for _, c := range []struct {
		record *perf.Record
		want   []int
	}{
		{kernelRecord(perf.RecordMmap2, pid, 0, 10, mapping(0x1000, "//anon")), nil}, // it is not known since when
		{kernelRecord(perf.RecordFork, pid+2, pid, 20, nil), []int{pid + 2}},
		{kernelRecord(perf.RecordFork, pid+1, pid, 30, nil), []int{pid + 2, pid + 1}},
		{kernelRecord(perf.RecordExit, pid+2, pid, 40, nil), []int{pid + 1}},
		{kernelRecord(perf.RecordFork, pid+2, pid+1, 50, nil), []int{pid + 1, pid + 2}},
	} {
		s.Observe(c.record)
		s.Gather()
		if got := s.Running(); !slices.Equal(got, c.want) {
			t.Errorf("at %d %v run, want %v", c.record.Sample.Time, got, c.want)
		}
	}
	if s.Apply(100); !slices.Equal(s.Running(), []int{pid, pid + 1, pid + 2}) {
		t.Errorf("%v run", s.Running())
	}
}
