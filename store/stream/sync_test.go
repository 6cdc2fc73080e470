package stream

import (
	"bytes"
	"errors"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// volatile is a File that keeps apart what is on the disk.
type volatile struct {
	mu      sync.Mutex
	written bytes.Buffer
	synced  []byte
	fails   error // of Sync
}

func (v *volatile) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.written.Write(p)
}

func (v *volatile) Sync() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fails != nil {
		return v.fails
	}
	v.synced = bytes.Clone(v.written.Bytes())
	return nil
}

func (v *volatile) Close() error { return nil }

func (v *volatile) onDisk() []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.synced
}

// survived opens what is on the disk and reads every packet of it.
func survived(t *testing.T, stream, index *volatile) *Reader {
	t.Helper()
	x := index.onDisk() // first: it must not describe more than the stream has later
	r := open(t, stream.onDisk(), x)
	for _, p := range r.Packets() {
		if _, err := r.ReadInto(p, nil); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (v *volatile) token(t *testing.T, w *Writer, n int) {
	t.Helper()
	if err := w.Append(&Packet{Name: "x", Exec: uint64(n)}, f32(float32(n)), nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// Whatever Sync returns is on the disk, whole, while more is being written.
func TestSync(t *testing.T) {
	var stream, index volatile
	w, err := New(&stream, &index, Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	if w.Synced() != (Mark{}) {
		t.Errorf("synced before anything was written: %+v", w.Synced())
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for i := range 2000 {
			stream.token(t, w, i)
		}
	})
	for range 20 {
		mark, err := w.Sync()
		if err != nil {
			t.Fatal(err)
		}
		r := survived(t, &stream, &index)
		if got := r.Info().Totals; got.Commits < mark.Commits || got.Packets < mark.Packets ||
			int64(len(stream.onDisk())) < mark.StreamBytes {
			t.Errorf("Sync returned %+v, and on the disk are %d commits, %d packets, %d bytes", mark, got.Commits,
				got.Packets, len(stream.onDisk()))
		}
		if w.Synced() != mark {
			t.Errorf("Synced %+v, want %+v", w.Synced(), mark)
		}
	}
	writing.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sync(); !errors.Is(err, ErrClosed) {
		t.Errorf("Sync after Close: %v", err)
	}
}

// With a policy commit markers come to the disk without any call, and the file says which policy it was.
func TestSyncPolicies(t *testing.T) {
	for _, policy := range []Sync{{Policy: SyncToken}, {Policy: SyncInterval, Interval: 2 * time.Millisecond}} {
		var stream, index volatile
		w, err := New(&stream, &index, Options{Workers: 2, Sync: policy})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 5 {
			stream.token(t, w, n)
			for deadline := time.Now().Add(testenv.Patience()); w.Synced().
				Commits != uint64(n+1); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%v: %d commit markers are synced a minute after commit %d", policy, w.Synced().Commits, n)
				}
			}
			r := survived(t, &stream, &index)
			if r.Info().Totals.Commits != uint64(n+1) || r.Info().Header.Sync != policy {
				t.Errorf("%v: %d commit markers on the disk, %d written; the header says %v", policy,
					r.Info().Totals.Commits, n+1, r.Info().Header.Sync)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Without one nothing is synced before the end.
func TestSyncNone(t *testing.T) {
	var stream, index volatile
	w, err := New(&stream, &index, Options{})
	if err != nil {
		t.Fatal(err)
	}
	stream.token(t, w, 0)
	if err := w.Flush(); err != nil || index.onDisk() != nil {
		t.Errorf("%d bytes are on the disk, %v", len(index.onDisk()), err)
	}
	if err := w.Close(); err != nil || survived(t, &stream, &index).Info().Totals.Commits != 1 {
		t.Errorf("after Close: %v", err)
	}
}

// A sync that fails is the end of the writer's life.
func TestSyncFails(t *testing.T) {
	stream, index := volatile{fails: syscall.EIO}, volatile{}
	w, err := New(&stream, &index, Options{Sync: Sync{Policy: SyncToken}})
	if err != nil {
		t.Fatal(err)
	}
	stream.token(t, w, 0)
	for deadline := time.Now().Add(testenv.Patience()); err == nil &&
		time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		err = w.Commit()
	}
	if !errors.Is(err, syscall.EIO) || !errors.Is(w.Close(), syscall.EIO) {
		t.Errorf("Commit: %v; Close: %v", err, w.Close())
	}
}

func TestSyncBad(t *testing.T) {
	for _, bad := range []Sync{{Policy: 9}, {Policy: SyncInterval}, {Policy: SyncInterval, Interval: 24 * time.Hour}} {
		path := filepath.Join(t.TempDir(), "a")
		if _, err := Create(path, Options{Sync: bad}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// Synced returns the place up to which everything is known to be on the disk.
func (w *Writer) Synced() Mark {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	return w.syncer.synced
}
