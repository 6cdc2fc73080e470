package stream

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/label"
)

// recordAt is the place of packet i's record in an index.
func recordAt(t testing.TB, x *index, i int) int64 {
	t.Helper()
	x.pages.mu.Lock()
	defer x.pages.mu.Unlock()
	_, at, err := x.pages.packet(i)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// paged writes a stream of so many executions, whose numbers come in any order within a distance, with packets
// between, and returns what was written.
func paged(t *testing.T, executions, apart int) (c *capture, stream, index []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, uint64(apart)))
	c = &capture{}
	s, x := newMemory(), newMemory()
	w, err := New(s, x, Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	numbers := make([]uint64, executions)
	for i := range numbers {
		numbers[i] = uint64(i)
	}
	for i := range numbers {
		j := min(i+r.IntN(apart+1), executions-1)
		numbers[i], numbers[j] = numbers[j], numbers[i]
	}
	for i, n := range numbers {
		e := Execution{Exec: n, TokenFirst: int64(i),
			Rows: []label.Row{{Index: int64(i), Token: int32(n), Request: label.RequestUnknown}}}
		if i%100 == 7 {
			e.Rows = slices.Repeat(e.Rows, 3000) // of more than a page
			for k := range e.Rows {
				e.Rows[k].Index = int64(i + k)
			}
		}
		c.executions = append(c.executions, e)
		if err := w.AppendExecution(&e); err != nil {
			t.Fatal(err)
		}
		for range r.IntN(4) {
			p := Packet{Name: fmt.Sprint("t", r.IntN(9)), SrcType: ggmlI32, Exec: n, NodeIndex: int32(len(c.packets))}
			c.packets = append(c.packets, p)
			if err := w.Append(&p, []byte{byte(i), 2, 3, 4}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return c, s.Bytes(), x.Bytes()
}

// TestPages reads long indexes in every order: packets by number, executions by theirs, from several goroutines at
// once. Of the index only pages are in memory.
func TestPages(t *testing.T) {
	for _, apart := range testenv.Brief([]int{3, 700, 0, 5000}, 1) {
		c, stream, index := paged(t, 3000, apart)
		r := open(t, stream, index)
		if n := len(r.parts[0].index.pages.all); r.Len() != len(c.packets) || n < 15 || n > 300 {
			t.Fatalf("%d packets of %d, %d pages", r.Len(), len(c.packets), n)
		}
		var wait sync.WaitGroup
		for g := range uint64(3) {
			wait.Go(func() {
				random := rand.New(rand.NewPCG(9, g))
				var p Packet
				for range 500 {
					i := random.IntN(r.Len())
					if err := r.Packet(i, &p); err != nil || int(p.NodeIndex) != i || p.Exec != c.packets[i].Exec ||
						p.Name != c.packets[i].Name {
						t.Errorf("packet %d is %+v, %v", i, p, err)
						return
					}
					e := &c.executions[random.IntN(len(c.executions))]
					if rows, ok := r.Rows(e.Exec); !ok || len(rows) != len(e.Rows) || rows[0].Token != e.Rows[0].Token {
						t.Errorf("%d rows of execution %d, %v", len(rows), e.Exec, ok)
						return
					}
				}
			})
		}
		wait.Wait()
		next := uint64(0)
		for e := range r.Executions() {
			if e.Exec != next || e.Rows[0].Token != int32(next) {
				t.Fatalf("%d apart: execution %d comes where %d belongs", apart, e.Exec, next)
			}
			next++
		}
		count := 0
		for i, p := range r.Packets() {
			if int(p.NodeIndex) != i {
				t.Fatalf("packet %d comes as %d", p.NodeIndex, i)
			}
			count++
		}
		if n := testing.AllocsPerRun(3, func() {
			for range r.Packets() {
			}
		}); n > 3 {
			t.Errorf("%.0f allocations for %d packets", n, count)
		}
		if next != 3000 || count != len(c.packets) || r.Err() != nil {
			t.Errorf("%d apart: %d executions, %d packets, %v", apart, next, count, r.Err())
		}
		if _, ok := r.Rows(3001); ok {
			t.Error("an execution that is not there has rows")
		}
	}
}

// TestPagesOfDamage: what is sound after damage in the middle is read as before, in pages of its own, and every
// way of reading gives the same.
func TestPagesOfDamage(t *testing.T) {
	c, stream, index := paged(t, 1000, 50)
	whole := open(t, stream, index)
	bad := bytes.Clone(index)
	for i := 100; i < len(c.packets); i += 300 {
		bad[recordAt(t, whole.parts[0].index, i)+14] ^= 1
	}
	r := open(t, stream, bad)
	if lost := len(c.packets) - r.Len(); lost < 3 || len(r.Info().Damage) < 3 {
		t.Fatalf("%d packets are lost, %v", lost, r.Info().Damage)
	}
	var again Packet
	count := 0
	for i, p := range r.Packets() {
		if err := r.Packet(i, &again); err != nil || again != *p || p.Exec != c.packets[p.NodeIndex].Exec {
			t.Fatalf("packet %d: %+v, %v", i, p, err)
		}
		count++
	}
	if count != r.Len() || r.Err() != nil {
		t.Errorf("%d packets of %d, %v", count, r.Len(), r.Err())
	}
}

// TestIndexChangesUnderReader: what is read again is compared again. An index that another program cut off or
// changed is reported, wherever it is looked at, and never gives other values.
func TestIndexChangesUnderReader(t *testing.T) {
	c, data, index := paged(t, 2000, 0)
	for name, change := range map[string]func(path string) error{
		"cut off": func(path string) error { return os.Truncate(path, 1000) },
		"changed": func(path string) error {
			return os.WriteFile(path, append(index[:2000:2000], make([]byte, len(index)-2000)...), 0o600)
		},
	} {
		path := filepath.Join(t.TempDir(), "a.stream")
		write(t, path, data)
		write(t, path+IndexSuffix, index)
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(path + IndexSuffix); err != nil {
			t.Fatal(err)
		}
		n := 0
		for i, p := range r.Packets() {
			if int(p.NodeIndex) != i || p.Exec != c.packets[i].Exec {
				t.Fatalf("%s: packet %d is %+v", name, i, p)
			}
			n++
		}
		if err := r.Err(); n == len(c.packets) || err == nil {
			t.Errorf("%s: %d packets, %v", name, n, err)
		}
		if err := r.Verify(nil); err == nil {
			t.Errorf("%s: Verify says that nothing is wrong", name)
		}
		for range r.Executions() {
			n++
		}
		if _, ok := r.Rows(1900); ok {
			t.Errorf("%s: rows of what is gone", name)
		}
		var p Packet
		if err := r.Packet(r.Len()-1, &p); err == nil || name == "changed" && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkIndex opens an index and goes through all packets.
func BenchmarkIndex(b *testing.B) {
	s, x := newMemory(), newMemory()
	w, err := New(s, x, Options{})
	if err != nil {
		b.Fatal(err)
	}
	const packets = 1 << 16
	for i := range uint64(packets) {
		w.Append(&Packet{Name: fmt.Sprint("t", i%200), SrcType: ggmlI32, Exec: i / 200}, []byte{1, 2, 3, 4}, nil)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	data := bytes.NewReader(s.Bytes())
	for _, what := range []string{"open", "in order", "one tensor"} {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			r := open(b, s.Bytes(), x.Bytes())
			var p Packet
			for b.Loop() {
				switch what {
				case "open":
					if _, err := newMemoryReader(data, data.Size(), x.Bytes()); err != nil {
						b.Fatal(err)
					}
				case "in order":
					for range r.Packets() {
					}
				default: // the worst: of each page one packet
					for i := 0; i < packets; i += 200 {
						r.Packet(i, &p)
					}
				}
			}
		})
	}
}
