package filemap

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
)

const mapsText = `55d0c0000000-55d0c0021000 r--p 00000000 fe:00 4100 /usr/bin/llama-completion
55d0c0300000-55d0c0400000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000100000 r--s 00010000 fe:00 77                         /models/tiny model.gguf
7f0000200000-7f0000300000 rw-p 00000000 00:00 0 
7f0000400000-7f0000500000 rw-s 00000000 00:01 9                          /memfd:tap (deleted)
7f0000600000-7f0000601000 rw-p 00003000 fe:00 88                         /lib/libgone.so (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
broken
7f00-7e00 r--p 0 fe:00 1 /backwards
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`

func TestMaps(t *testing.T) {
	all := parseMaps(mapsText)
	if len(all) != 8 {
		t.Fatalf("%d mappings: %+v", len(all), all)
	}
	p := &process{maps: all}
	for address, want := range map[uint64]string{
		0x55d0c0300000: memoryHeap, 0x7f00002fffff: memoryAnonymous, 0x7f0000400001: memoryShared,
		0x7f0000600000: memoryPrivate, 0x7ffc00000001: memoryStack,
	} {
		if m := p.find(address); m == nil || m.kind() != want {
			t.Errorf("%#x is %+v, want %s", address, m, want)
		}
	}
	m := p.find(0x7f0000000000)
	if want := (&mapping{0x7f0000000000, 0x7f0000100000, 0x10000, fileKey{0xfe << 20, 77}, "/models/tiny model.gguf",
		false}); !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, want %+v", m, want)
	}
	if m := p.find(0x7f0000600fff); m == nil || m.path != "/lib/libgone.so" || !m.named() {
		t.Errorf("%+v", m)
	}
	for _, address := range []uint64{0, 0x7f0000100000, 0x7f0000601000, 1<<64 - 1} {
		if m := p.find(address); m != nil {
			t.Errorf("%#x is %+v", address, m)
		}
	}
}

func FuzzMaps(f *testing.F) {
	f.Add(mapsText)
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMaps(text) {
			if m.end <= m.start {
				t.Errorf("%+v", m)
			}
		}
	})
}

// small makes a GGUF of three tensors of 5001 bytes, so that padding follows each.
func small(t *testing.T) (string, *gguf.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.gguf")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var meta gguf.Metadata
	meta.Set("general.architecture", "llama")
	var tensors []gguf.Tensor
	for _, name := range []string{"token_embd.weight", "blk.0.attn_q.weight", "blk.11.ffn_up.weight"} {
		tensors = append(tensors, gguf.Tensor{Name: name, Type: gguf.I8, Shape: []int64{5001}})
	}
	w, err := gguf.NewWriter(out, &meta, tensors)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 3*5001)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return path, w.File()
}

// TestTensors: every byte of a model belongs to one place, faults and ranges alike.
func TestTensors(t *testing.T) {
	path, model := small(t)
	f := newFiles()
	f.Proc = "/nowhere"
	key, err := f.AddPath(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{}
	for offset := range uint64(model.Size) {
		h := f.Resolve(&Event{Kind: Fault, File: key, First: offset / f.Page, Last: offset / f.Page,
			At: 0x7f0000000000 + offset, Flags: Slow})
		p := f.Place(h.Place)
		expected, layer := resource.PartPadding, -1
		if tensor, ok := model.At(int64(offset)); ok {
			expected, layer = tensor.Name, resource.TensorLayer(tensor.Name)
		} else if int64(offset) < model.DataOffset {
			expected = resource.PartHeader
		}
		if p.Tensor != expected || p.File != path || p.Layer != layer || h.Offset != offset || h.Memory != "" {
			t.Fatalf("byte %d is %+v at %d, want %s", offset, p, h.Offset, expected)
		}
		want[expected]++
	}
	if want["blk.11.ffn_up.weight"] != 5001 || want[resource.PartHeader] == 0 || want[resource.PartPadding] == 0 {
		t.Errorf("bytes %v", want)
	}
	for _, step := range []uint64{1, 7, 512, 4096, uint64(model.Size)} {
		got := map[string]uint64{}
		for at := uint64(0); at < uint64(model.Size); at += step {
			f.spread(key, at, min(step, uint64(model.Size)-at),
				func(place int, n uint64) { got[f.Place(place).Tensor] += n })
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("in steps of %d: %v, want %v", step, got, want)
		}
	}
	beyond := uint64(0)
	f.spread(key, uint64(model.Size)-10, 4096, func(_ int, n uint64) { beyond += n })
	if beyond != 4096 {
		t.Errorf("%d bytes of 4096 after the end", beyond)
	}
}

// proc makes a folder of a process that has mappings.
func proc(t *testing.T, pid int, maps string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint(pid), "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(pid), "maps"), []byte(maps), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAddKnown: a model that was found in a process's mappings has the same places after its path is added, again and
// again, and under another name.
func TestAddKnown(t *testing.T) {
	path, model := small(t)
	key, err := keyOf(path)
	if err != nil {
		t.Fatal(err)
	}
	f := newFiles()
	f.Proc = proc(t, os.Getpid(), "")
	pid := uint32(os.Getpid())
	if err := os.Symlink("/", filepath.Join(f.Proc, fmt.Sprint(pid), "root")); err != nil {
		t.Fatal(err)
	}
	f.setPath(key, path, pid)
	link := filepath.Join(t.TempDir(), "link.gguf")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	e := &Event{Kind: Read, File: key, First: uint64(model.Tensors[0].Offset) / f.Page}
	want := f.Resolve(e).Place
	for _, path := range []string{path, link, path} {
		if added, err := f.AddPath(path); err != nil || added != key {
			t.Fatalf("%v, %v", added, err)
		}
		got := f.Resolve(e).Place
		f.spread(key, e.First*f.Page, 1, func(place int, _ uint64) {
			if place != want || got != want || f.Place(place).File == link {
				t.Errorf("%s: %+v and %+v, want %+v", path, f.Place(got), f.Place(place), f.Place(want))
			}
		})
	}
}

// TestAddRelative: the path of a place is absolute, as that of a mapping.
func TestAddRelative(t *testing.T) {
	path, _ := small(t)
	t.Chdir(filepath.Dir(path))
	f := newFiles()
	key, err := f.AddPath(filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Place(f.Resolve(&Event{Kind: Read, File: key}).Place).File; got != path {
		t.Errorf("%s, want %s", got, path)
	}
}

func TestResolve(t *testing.T) {
	f := newFiles()
	f.Page, f.Again = 4096, 0
	f.Proc = proc(t, 5, mapsText)
	opened := filepath.Join(t.TempDir(), "opened.bin")
	if err := os.WriteFile(opened, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(opened, filepath.Join(f.Proc, "5", "fd", "3")); err != nil {
		t.Fatal(err)
	}
	openKey, err := keyOf(opened)
	if err != nil {
		t.Fatal(err)
	}
	model := fileKey{0xfe << 20, 77}
	for _, c := range []struct {
		name   string
		e      Event
		file   string // or the memory's kind
		offset uint64
	}{
		{"by itself", Event{At: 0x7f0000003123, File: model, First: 0x13, Last: 0x13, Flags: Slow},
			"/models/tiny model.gguf", 0x13123},
		{"around", Event{At: 0x7f0000003123, File: model, First: 0x10, Last: 0x1f, Flags: Around},
			"/models/tiny model.gguf", 0x13123},
		{"around, of a mapping that is gone", Event{At: 0x600000005008, File: model, First: 0x20, Last: 0x2f,
			Flags: Around}, "/models/tiny model.gguf", 0x25008},
		{"another number", Event{At: 0x7f0000003123, File: fileKey{9, 9}, First: 0x13, Last: 0x13, Flags: Slow},
			"/models/tiny model.gguf", 0x13123},
		{"another file, which was mapped there before", Event{At: 0x7f0000003123, File: fileKey{0xfe << 20, 78},
			First: 0x13, Last: 0x13, Flags: Slow}, "dev:254:0/ino:78", 0x13123},
		{"open", Event{Kind: Read, File: openKey, First: 2, Last: 3}, opened, 0x2000},
		{"nobody's", Event{Kind: Read, File: fileKey{8<<20 | 1, 4}}, "dev:8:1/ino:4", 0},
		{"heap", Event{At: 0x55d0c0300008}, memoryHeap, 0},
		{"no mapping", Event{At: 0x10}, memoryAnonymous, 0},
	} {
		if c.e.PID = 5; c.e.Kind == 0 {
			c.e.Kind = Fault
		}
		h := f.Resolve(&c.e)
		got := h.Memory
		if h.Place >= 0 {
			got = f.Place(h.Place).File
		}
		if got != c.file || h.Offset != c.offset {
			t.Errorf("%s: %s at %#x, want %s at %#x", c.name, got, h.Offset, c.file, c.offset)
		}
	}
	f.ByMapping = true
	if h := f.Resolve(&Event{Kind: Fault, PID: 5, At: 0x7f0000003123}); h.Place < 0 ||
		f.Place(h.Place).File != "/models/tiny model.gguf" || h.Offset != 0x13123 {
		t.Errorf("by its mapping: %+v", h)
	}
	for address, want := range map[uint64]string{0x55d0c0300008: memoryHeap, 0x10: memoryAnonymous,
		0x7f0000600000: memoryPrivate} {
		if h := f.Resolve(&Event{Kind: Fault, PID: 5, At: address}); h.Place >= 0 || h.Memory != want {
			t.Errorf("by mapping, %#x is %+v", address, h)
		}
	}
	f.ByMapping = false
	// A process that is gone: what was known of it stays.
	f.Proc = "/nowhere"
	if h := f.Resolve(&Event{Kind: Fault, PID: 5, At: 0x7ffc00000001}); h.Memory != memoryStack {
		t.Errorf("%+v of a process that is gone", h)
	}
	if h := f.Resolve(&Event{Kind: Fault, PID: 6, At: 0x7ffc00000001}); h.Memory != memoryAnonymous {
		t.Errorf("%+v of a process that was never seen", h)
	}
}

// TestLearned: a file that was counted by its number gets its name when that is known.
func TestLearned(t *testing.T) {
	f := newFiles()
	f.Again, f.Proc = 0, proc(t, 5, "")
	e := &Event{Kind: Read, PID: 5, File: fileKey{0xfe << 20, 77}}
	h := f.Resolve(e)
	if name := f.Place(h.Place).File; !strings.HasPrefix(name, "dev:254:0/") {
		t.Fatal(name)
	}
	f.Proc = proc(t, 5, mapsText)
	if again := f.Resolve(e); again.Place != h.Place || f.Place(h.Place).File != "/models/tiny model.gguf" {
		t.Errorf("%+v, now %+v of %+v", h, again, f.Place(again.Place))
	}
}
