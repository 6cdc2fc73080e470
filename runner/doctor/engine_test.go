package doctor

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestEntries compares the entry points with those that the tap looks up, each of which is in one group.
func TestEntries(t *testing.T) {
	header, err := os.ReadFile(filepath.Join(testenv.Root(t), "cgo", "tap", "tap_real.h"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(header), "#define TAP_REAL_FUNCTIONS(X)")
	table, _, end := strings.Cut(table, "struct tap_real {")
	if !ok || !end {
		t.Fatal("tap_real.h has no table TAP_REAL_FUNCTIONS before struct tap_real")
	}
	var tap, ours []string
	for _, m := range regexp.MustCompile(`(?m)^ +X\([^,]+, (\w+), \(`).FindAllStringSubmatch(table, -1) {
		tap = append(tap, m[1])
	}
	if n := strings.Count(table, " X("); n != len(tap) || n == 0 {
		t.Fatalf("%d entries of %d were understood", len(tap), n)
	}
	for _, e := range entries {
		ours = append(ours, e.functions...)
	}
	slices.Sort(tap)
	slices.Sort(ours)
	if !slices.Equal(tap, ours) {
		t.Errorf("the tap looks up\n%q\nand the doctor\n%q", tap, ours)
	}
}

// TestFound takes functions away: only the evidence that needs one is missing.
func TestFound(t *testing.T) {
	all := map[string]bool{}
	for _, e := range entries {
		for _, name := range e.functions {
			all[name] = true
		}
	}
	for _, f := range found(all) {
		if f.Status != OK {
			t.Errorf("%+v", f)
		}
	}
	for _, c := range []struct {
		without, name string
		essential     bool
	}{{"llama_process", "batches", false}, {"ggml_graph_node", "graphs", true}, {"ggml_mul_mat", "tensors", true}} {
		delete(all, c.without)
		facts := found(all)
		all[c.without] = true
		f := find(t, facts, entryTopic, c.name)
		if f.Status != Missing || !strings.Contains(f.Value, "no "+c.without) || f.Costs == "" {
			t.Errorf("without %s: %+v", c.without, f)
		}
		if lack := Lacking(facts); (len(lack) == 1) != c.essential {
			t.Errorf("without %s it lacks %v", c.without, lack)
		}
	}
}

// TestLibraries reads the libraries of the fetched llama.cpp.
func TestLibraries(t *testing.T) {
	testenv.NeedLlama(t)
	in, err := llama.Installed()
	if err != nil {
		testenv.Beyond(t, "the build tag llama", err.Error())
	}
	for _, f := range functions(in) {
		if f.Status != OK {
			t.Errorf("%+v", f)
		}
	}
	in.LibDir = t.TempDir()
	for _, name := range []string{"graphs", "tensors"} {
		if f := find(t, functions(in), entryTopic, name); f.Status != Unknown {
			t.Errorf("without libraries: %+v", f)
		}
	}
	if f := loadable(in); f.Status != OK || !strings.Contains(f.Value, "cpu (") {
		t.Errorf("backends: %+v", f)
	}
	in.Backends = t.TempDir()
	if f := loadable(in); f.Status != Missing {
		t.Errorf("without backends: %+v", f)
	}
}

// TestLoaded looks at the loader and the C library of this very process.
func TestLoaded(t *testing.T) {
	in, err := llama.Installed()
	if err != nil {
		testenv.Beyond(t, "the build tag llama", err.Error())
	}
	facts := loaded(os.DirFS("/"), in)
	loader, libc := find(t, facts, engineTopic, "loader"), find(t, facts, engineTopic, "glibc")
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	interpreter, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	p := self.Section(".interp")
	want := strings.TrimRight(string(interpreter[p.Offset:p.Offset+p.Size]), "\x00")
	if want, err = filepath.EvalSymlinks(want); err != nil {
		t.Fatal(err)
	}
	if path, _, _ := strings.Cut(loader.Value, ", "); path != want ||
		strings.Contains(loader.Value, "brought along") != (in.Loader != "") {
		t.Errorf("loader is %+v, want %s", loader, want)
	}
	if !regexp.MustCompile(`^2\.\d\d in /`).MatchString(libc.Value) {
		t.Errorf("%+v", libc)
	}
}

// TestPackedLoader: the loader of an archive has a name and a folder of its own.
func TestPackedLoader(t *testing.T) {
	dir := t.TempDir()
	in := llama.Installation{LibPath: "/lib", Loader: filepath.Join(dir, "ld.so")}
	maps := "7f00-7f10 r-xp 00000000 fd:00 1    " + in.Loader + "\n"
	f := find(t, loaded(fstest.MapFS{"proc/self/maps": file(maps)}, in), engineTopic, "loader")
	if f.Status != OK || f.Value != in.Loader+", brought along by llamatap" {
		t.Errorf("%+v", f)
	}
}

func TestDevices(t *testing.T) {
	answer := func(d []llama.Device, err error) []Fact {
		return devices(Options{Devices: func() ([]llama.Device, error) { return d, err }})
	}
	cpu := llama.Device{Name: "CPU", Description: "A processor", Kind: llama.DeviceCPU, FreeBytes: 1 << 30,
		TotalBytes: 1 << 30}
	gpu := llama.Device{Name: "CUDA0", Description: "A card", Kind: llama.DeviceGPU, FreeBytes: 3 << 29,
		TotalBytes: 80 << 30}
	facts := answer([]llama.Device{cpu}, nil)
	if f := find(t, facts, engineTopic, "devices"); f.Status != OK || f.Value != "CPU (A processor)" {
		t.Errorf("%+v", f)
	}
	if f := find(t, facts, engineTopic, "gpu"); f.Status != Missing || !strings.Contains(f.Remedy, "source") {
		t.Errorf("%+v", f)
	}
	if f := find(t, answer([]llama.Device{gpu, cpu}, nil), engineTopic,
		"gpu"); f.Value != "CUDA0 (A card), 1.50 GiB of 80.0 GiB free" {
		t.Errorf("%+v", f)
	}
	if f := answer(nil, errors.New("no\nbackend"))[0]; f.Status != Missing || f.Value != "no backend" ||
		!f.essential() {
		t.Errorf("%+v", f)
	}
	if f := answer(nil, fmt.Errorf("%w: hangs", ErrUndecided))[0]; f.Status != Unknown {
		t.Errorf("%+v", f)
	}
}

// TestBLASFact recommends the backend for the types for which it is at least twice as fast.
func TestBLASFact(t *testing.T) {
	answer := func(p []Product, err error) Fact {
		return blas(Options{Products: func() ([]Product, error) { return p, err }})[0]
	}
	slow, fast := Product{gguf.Q4_K, 10, 9}, Product{gguf.F32, 50, 10}
	for _, c := range []struct {
		products []Product
		want     string
	}{
		{[]Product{fast, slow}, "f32 5.00, q4_K 1.11; use run --blas for prompts with weights in f32"},
		{[]Product{slow}, "q4_K 1.11; no reason to use run --blas"},
	} {
		if f := answer(c.products, nil); f.Status != OK || !strings.HasSuffix(f.Value, c.want) {
			t.Errorf("%+v, want %q", f, c.want)
		}
	}
	if f := answer(nil, errors.New("no BLAS backend")); f.Status != Missing || f.essential() {
		t.Errorf("%+v", f)
	}
	if f := answer(nil, ErrUndecided); f.Status != Unknown {
		t.Errorf("%+v", f)
	}
	if err := llama.Init(); errors.Is(err, errors.ErrUnsupported) {
		return
	}
	all, err := MeasureProducts()
	if err != nil || len(all) != 5 || slices.ContainsFunc(all, func(p Product) bool {
		return p.CPU <= 0 ||
			p.BLAS <= 0
	}) {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestObject distinguishes the tap of this build from one that is not there, is no tap, or is of another build.
func TestObject(t *testing.T) {
	if runtime.GOOS != "linux" {
		testenv.Beyond(t, "Linux", runtime.GOOS)
	}
	tap := filepath.Join(filepath.Dir(testenv.NeedBinary(t)), "libllamatap.so")
	look := func(path string) Fact { return object(func() (string, error) { return path, nil }) }
	if f := look(tap); f.Status != OK {
		t.Errorf("%+v", f)
	}
	if f := look(filepath.Join(t.TempDir(), "none")); f.Status != Missing ||
		!strings.HasSuffix(f.Value, "is not there") {
		t.Errorf("%+v", f)
	}
	if f := object(func() (string, error) { return "", errors.New("no /proc") }); f.Status != Unknown ||
		f.Value != "no /proc" {
		t.Errorf("%+v", f)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if f := look(script); f.Status != Missing || f.Costs == "" {
		t.Errorf("%+v", f)
	}
	other := filepath.Join(t.TempDir(), "other.so")
	if err := os.WriteFile(other, rebuilt(t, tap), 0o700); err != nil {
		t.Fatal(err)
	}
	if f := look(other); f.Status != Missing || !strings.Contains(f.Value, "is not of this llamatap") {
		t.Errorf("%+v", f)
	}
}

// rebuilt is a tap as a later version would have made it.
func rebuilt(t *testing.T, path string) []byte {
	t.Helper()
	bytes, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.file.Close()
	s := l.defines["tap_build"]
	section := l.file.Sections[s.Section]
	bytes[section.Offset+s.Value-section.Addr]++
	return bytes
}

// TestTested: versions between the first and the last that are tested are; what is newer, older or unknown is said to
// be used as far as it goes.
func TestTested(t *testing.T) {
	for version, want := range map[string]Status{"0.5.0": OK, "0.5.0-dev": OK, "0.6.3": OK, "0.7.9": OK,
		"0.4.9":     Limited,
		"0.8.0-dev": Limited, "1.0.0": Limited, "b4711": Limited, "": Limited} {
		if f := tested(Fact{Status: OK, Value: "llama.cpp " + version}, version); f.Status != want ||
			(want == Limited) != strings.Contains(f.Value, "tested are 0.5.0 to 0.7.0") {
			t.Errorf("%q: %+v", version, f)
		}
	}
}
