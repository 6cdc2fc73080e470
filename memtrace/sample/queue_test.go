package sample

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
)

func access(n int) memtrace.Access {
	return memtrace.Access{
		TimeNS: int64(n), Addr: uint64(n) << 12, Size: uint64(n % 9), IP: ^uint64(n), Latency: uint64(n % 7), Weight: 3,
		PID: int32(n), TID: -int32(n), CPU: int32(n % 5),
		Op: memtrace.AccessOp(n % 5), Level: memtrace.CacheLevel(n % 14), Collector: memtrace.Collector(n % 6),
	}
}

// TestQueueKeepsAll: whatever is taken when, everything comes out once, in its order, and the folder is empty.
func TestQueueKeepsAll(t *testing.T) {
	folder := t.TempDir()
	q := NewQueue(folder)
	q.most = 10
	var got []memtrace.Access
	put := 0
	for _, step := range []struct{ put, take int }{{5, 2}, {30, 0}, {3, 20}, {100, 7}, {0, 50}, {1, 1000}, {4, 4},
		{25, 5}, {0, 1000}} {
		for range step.put {
			a := access(put)
			q.Put(&a)
			put++
		}
		got = q.appendMemory(got, step.take)
	}
	if len(got) != put {
		t.Fatalf("%d of %d came out", len(got), put)
	}
	for i, a := range got {
		if a != access(i) {
			t.Fatalf("number %d: %+v, want %+v", i, a, access(i))
		}
	}
	if lost, err := q.Lost(); lost != 0 || err != nil {
		t.Error(lost, err)
	}
	if files, _ := os.ReadDir(folder); len(files) != 0 {
		t.Errorf("the folder has %v", files)
	}
	if q.file != nil {
		t.Error("the file is kept though it is empty")
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// TestQueueWithoutDisk: what finds no room is counted, and what is in memory stays.
func TestQueueWithoutDisk(t *testing.T) {
	q := NewQueue(filepath.Join(t.TempDir(), "none"))
	q.most = 3
	for i := range 8 {
		a := access(i)
		q.Put(&a)
	}
	if lost, err := q.Lost(); lost != 5 || !errors.Is(err, os.ErrNotExist) {
		t.Error(lost, err)
	}
	if got := q.appendMemory(nil, 100); !slices.Equal(got, []memtrace.Access{access(0), access(1), access(2)}) {
		t.Errorf("%+v", got)
	}
}

// TestQueueOnFailingDisk: of a file that takes no more, what it did not take is counted.
func TestQueueOnFailingDisk(t *testing.T) {
	name := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name) // for reading
	if err != nil {
		t.Fatal(err)
	}
	q := NewQueue(t.TempDir())
	q.most = 2
	q.file, q.out = file, bufio.NewWriterSize(file, 1<<10)
	const put = 5000
	for i := range put {
		a := access(i)
		q.Put(&a)
	}
	got := q.appendMemory(nil, 2*put)
	lost, err := q.Lost()
	if !errors.Is(err, syscall.EBADF) || len(got) != 2 || lost != put-2 {
		t.Errorf("%d came out, %d were lost, of %d: %v", len(got), lost, put, err)
	}
}
