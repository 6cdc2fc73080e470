package memtrace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// world is what a RegionMap gets, kept so that everything can be looked up by walking over all of it.
type world struct {
	buffers []Buffer
	placed  []Tensor
}

// buffer is the region type and tensor of a byte of a buffer: what was placed there with the most bytes.
func (w *world) at(b *Buffer, offset uint64) (tensor string, begin uint64) {
	best := uint64(0)
	for _, t := range w.placed {
		if t.Buffer == b.ID && t.Offset <= offset && offset < t.Offset+t.Bytes && t.Bytes > best {
			tensor, begin, best = t.Name, t.Offset, t.Bytes
		}
	}
	return tensor, begin
}

// fits reports whether a tensor lies within another one, or none half in it.
func (w *world) fits(n Tensor) bool {
	half := false
	for _, t := range w.placed {
		if t.Buffer != n.Buffer || t.Offset+t.Bytes <= n.Offset || n.Offset+n.Bytes <= t.Offset {
			continue
		}
		if t.Offset <= n.Offset && n.Offset+n.Bytes <= t.Offset+t.Bytes {
			return true
		}
		half = half || t.Offset < n.Offset || n.Offset+n.Bytes < t.Offset+t.Bytes
	}
	return !half
}

// walk lets a map and a world live through the same: buffers come and go, at addresses that are used again, and
// tensors are placed in them.
func walk(t *testing.T, seed uint64, steps int) (*RegionMap, *world) {
	r := rand.New(rand.NewPCG(seed, 1))
	m, w := NewRegionMap(), &world{}
	for now := int64(1); now <= int64(steps); now++ {
		live := slices.DeleteFunc(slices.Clone(w.buffers), func(b Buffer) bool { return b.To != Forever })
		switch n := r.IntN(10); {
		case n < 3 || len(live) == 0:
			b := Buffer{ID: uint64(len(w.buffers) + 1), Base: uint64(r.IntN(40)) * 5, Size: uint64(1 + r.IntN(60)),
				Host: r.IntN(4) != 0, Usage: Usage(r.IntN(3)), From: now, To: Forever}
			if err := m.AddBuffer(b); err != nil {
				t.Fatal(err)
			}
			w.buffers = append(w.buffers, b)
		case n < 5:
			b := live[r.IntN(len(live))]
			m.FreeBuffer(b.ID, now)
			w.buffers[b.ID-1].To = now
		default:
			b := live[r.IntN(len(live))]
			offset := uint64(r.IntN(int(b.Size)))
			p := Tensor{Name: fmt.Sprintf("t%d", now), Buffer: b.ID, Offset: offset,
				Bytes: 1 + uint64(r.IntN(int(b.Size-offset)))}
			root, err := m.Place(p)
			if !w.fits(p) {
				if !errors.Is(err, ErrPlace) {
					t.Fatalf("%+v: %v", p, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%+v: %v", p, err)
			}
			w.placed = append(w.placed, p)
			if name, begin := w.at(&b, offset); root.Bytes != p.Bytes && root.Tensor != name || root.Offset > begin {
				t.Fatalf("%+v is in %+v, want %s", p, root, name)
			}
		}
	}
	return m, w
}

// TestMapIsWhatItWasTold compares a map with a walk over all that it got: every offset of every buffer, and
// every address at every time.
func TestMapIsWhatItWasTold(t *testing.T) {
	testenv.Once(t)
	for seed := range uint64(60) {
		const steps = 60
		m, w := walk(t, seed, steps)
		for i := range w.buffers {
			b := &w.buffers[i]
			for offset := range b.Size {
				tensor, begin := w.at(b, offset)
				h := m.At(b.ID, offset)
				if h.Region.Tensor != "" != (tensor != "") || tensor != "" &&
					(h.Region.Offset != begin || h.Offset != offset-begin) || h.Region.Buffer != b.ID ||
					h.Region.To != b.To {
					t.Fatalf("seed %d: offset %d of buffer %d: %+v of %+v, want %s from %d on", seed, offset, b.ID,
						h.Offset, h.Region, tensor, begin)
				}
			}
			if h := m.At(b.ID, b.Size); h.Region != nil {
				t.Errorf("behind the end of buffer %d: %+v", b.ID, h)
			}
		}
		for addr := range uint64(300) {
			for now := range int64(steps + 2) {
				checkAddress(t, m, w, addr, now)
			}
		}
		checkRegions(t, m, w)
	}
}

// checkAddress: what is found is live then, and holds the address; nothing is found only where nothing was; of
// several buffers at one address that which has a tensor there is reported.
func checkAddress(t *testing.T, m *RegionMap, w *world, addr uint64, now int64) {
	t.Helper()
	some, tensors := false, false
	for i := range w.buffers {
		b := &w.buffers[i]
		if b.Host && b.Base <= addr && addr < b.Base+b.Size && b.From <= now && now < b.To {
			tensor, _ := w.at(b, addr-b.Base)
			some, tensors = true, tensors || tensor != ""
		}
	}
	h := m.Address(addr, now)
	if (h.Region != nil) != some {
		t.Fatalf("address %d at %d: %+v", addr, now, h.Region)
	}
	if !some {
		return
	}
	b := w.buffers[h.Region.Buffer-1]
	if !b.Host || now < b.From || now >= b.To || b.Base+h.Region.Offset+h.Offset != addr ||
		h.Offset >= h.Region.Bytes || (h.Region.Tensor != "") != tensors {
		t.Fatalf("address %d at %d: offset %d of %+v in %+v", addr, now, h.Offset, h.Region, b)
	}
}

// checkRegions: the regions of a buffer are all of it, and none twice.
func checkRegions(t *testing.T, m *RegionMap, w *world) {
	t.Helper()
	sums := map[uint64]uint64{}
	for i, r := range m.Regions() {
		if r.root != nil || r.Bytes == 0 || i > 0 && m.Regions()[i-1].ID >= r.ID {
			t.Errorf("region %+v", r)
		}
		sums[r.Buffer] += r.Bytes
	}
	for _, b := range w.buffers {
		if sums[b.ID] != b.Size {
			t.Errorf("the regions of buffer %d have %d of %d bytes", b.ID, sums[b.ID], b.Size)
		}
	}
}

// TestViewsBecomeTheirRoot: what was seen before the tensor that it is a view of counts as that tensor's.
func TestViewsBecomeTheirRoot(t *testing.T) {
	m := NewRegionMap()
	m.AddBuffer(Buffer{ID: 1, Base: 1000, Size: 1000, Host: true, From: 5})
	a, _ := m.Place(Tensor{Name: "a view", Buffer: 1, Offset: 128, Bytes: 10})
	b, _ := m.Place(Tensor{Name: "another", Buffer: 1, Offset: 192, Bytes: 10})
	a.Use.Read(2, 20, 50, 60)
	b.Use.Read(1, 5, 40, 45)
	b.Use.Write(1, 5, 41, 41)
	root, err := m.Place(Tensor{Name: "cache_k_l3", Part: "k", Layer: 3, Buffer: 1, Offset: 128, Bytes: 256})
	if err != nil || a.Root() != root || b.Root() != root || root.Type != KVCache {
		t.Fatalf("%v, %+v", err, root)
	}
	if want := (Use{FirstWriteNS: 41, LastWriteNS: 41, FirstReadNS: 40, LastReadNS: 60, Writes: 1, Reads: 3,
		BytesWritten: 5, BytesRead: 25}); root.Use != want {
		t.Errorf("%+v, want %+v", root.Use, want)
	}
	if again, err := m.Place(Tensor{Name: "cache_k_l3 (view)", Buffer: 1, Offset: 130, Bytes: 3}); again != root ||
		err != nil {
		t.Errorf("a view is %+v, %v", again, err)
	}
	if h := m.Address(1000+128+7, 5); h.Region != root || h.Offset != 7 || h.Type() != KVCache {
		t.Errorf("%+v", h)
	}
}

// TestAdaptersAreWeights: llama.cpp says what the buffers of models are for, and not those of adapters.
func TestAdaptersAreWeights(t *testing.T) {
	m := NewRegionMap()
	m.AddBuffer(Buffer{ID: 1, Size: 1000})
	a, _ := m.Place(Tensor{Name: "blk.1.attn_q.weight.lora_a", Buffer: 1, Offset: 0, Bytes: 100})
	o, _ := m.Place(Tensor{Name: "leaf_7", Buffer: 1, Offset: 544, Bytes: 100})
	m.AddBuffer(Buffer{ID: 1, Size: 1000, Type: "CPU"})
	if a.Type != Weight || o.Type != Runtime {
		t.Errorf("%v, %v", a.Type, o.Type)
	}
}

// TestUsageMayComeLate: a program says after an allocation what it is for.
func TestUsageMayComeLate(t *testing.T) {
	m := NewRegionMap()
	m.AddBuffer(Buffer{ID: 1, Size: 1000})
	w, _ := m.Place(Tensor{Name: "output.weight", Buffer: 1, Offset: 0, Bytes: 100})
	k, _ := m.Place(Tensor{Name: "cache_v_l0", Part: "v", Buffer: 1, Offset: 544, Bytes: 100})
	if w.Type != Runtime || k.Type != KVCache || m.At(1, 300).Type() != Runtime {
		t.Errorf("%v, %v", w.Type, k.Type)
	}
	m.AddBuffer(Buffer{ID: 1, Size: 1000, Usage: UsageWeights})
	if w.Type != Weight || k.Type != KVCache || m.At(1, 300).Type() != Weight || len(m.Buffers()) != 1 {
		t.Errorf("%v, %v", w.Type, k.Type)
	}
}

// TestPadding: what aligns the next tensor is padding, what is longer is not, and what turns out to be longer than
// tensors are aligned to was none.
func TestPadding(t *testing.T) {
	m := NewRegionMap()
	m.AddBuffer(Buffer{ID: 1, Size: 1024, Usage: UsageWeights})
	place := func(offset, bytes uint64) {
		t.Helper()
		if _, err := m.Place(Tensor{Name: fmt.Sprint("t", offset), Buffer: 1, Offset: offset,
			Bytes: bytes}); err != nil {
			t.Fatal(err)
		}
	}
	types := func(want string) {
		t.Helper()
		got := ""
		for _, r := range m.buffers[1].cover {
			got += fmt.Sprintf("%d %s %s\n", r.Offset, r.Tensor, r.Type)
		}
		if got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
	place(0, 100)
	place(128, 60)
	types("0 t0 weight\n100  padding\n128 t128 weight\n188  weight\n")
	place(960, 50)
	types("0 t0 weight\n100  padding\n128 t128 weight\n188  weight\n960 t960 weight\n1010  padding\n")
	place(416, 32)
	place(480, 480)
	types("0 t0 weight\n100  padding\n128 t128 weight\n188  weight\n416 t416 weight\n448  weight\n480 t480 " +
		"weight\n960 t960 weight\n1010  padding\n")
}

// TestDeviceMemoryHasNoAddress: a device's buffer at the address of one of the host is never found by it.
func TestDeviceMemoryHasNoAddress(t *testing.T) {
	m := NewRegionMap()
	m.AddBuffer(Buffer{ID: 1, Base: 0x1000, Size: 0x1000, Device: "RPC0", From: 1})
	if h := m.Address(0x1800, 2); h.Region != nil || h.Type() != Other {
		t.Errorf("%+v", h)
	}
	m.AddBuffer(Buffer{ID: 2, Base: 0x1000, Size: 0x1000, Host: true, Device: "CPU", From: 1})
	if h := m.Address(0x1800, 2); h.Region == nil || h.Region.Buffer != 2 || m.At(1, 0x800).Region.Buffer != 1 {
		t.Errorf("%+v", h.Region)
	}
}

// TestBuffersThatAreNone are refused, and tensors without a place are.
func TestBuffersThatAreNone(t *testing.T) {
	m := NewRegionMap()
	for _, b := range []Buffer{{ID: 0, Size: 5}, {ID: 1}, {ID: 1, Base: 1<<64 - 2, Size: 5}} {
		if m.AddBuffer(b) == nil {
			t.Errorf("%+v was taken", b)
		}
	}
	m.AddBuffer(Buffer{ID: 7, Size: 100, From: 3})
	m.FreeBuffer(8, 5)
	for _, p := range []Tensor{{Name: "a", Buffer: 6, Bytes: 1}, {Name: "b", Buffer: 7, Offset: 99, Bytes: 2},
		{Name: "c", Buffer: 7}, {Name: "d", Buffer: 7, Offset: 1<<64 - 1, Bytes: 2}} {
		if _, err := m.Place(p); !errors.Is(err, ErrPlace) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	m.FreeBuffer(7, 1) // no life ends before it began
	if b := m.Buffer(7); b.To != 3 {
		t.Errorf("%+v", b)
	}
	if _, err := m.Place(Tensor{Name: "e", Buffer: 7, Bytes: 1}); !errors.Is(err, ErrPlace) {
		t.Error(err)
	}
}
