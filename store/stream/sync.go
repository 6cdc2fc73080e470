package stream

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// SyncPolicy says when what was written is put on the disk, so that it outlives the machine's end and not only the
// program's.
type SyncPolicy uint8

// The policies. Their numbers stand in index files.
const (
	SyncNone     SyncPolicy = iota // when the file system does it, and at the end
	SyncInterval                   // every so often
	SyncToken                      // as soon as a commit marker was written and the sync before has ended
)

var syncPolicyNames = [...]string{"none", "interval", "token"}

// String returns the policy's name as it stands in flags and files.
func (p SyncPolicy) String() string {
	if int(p) < len(syncPolicyNames) {
		return syncPolicyNames[p]
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// Sync is a policy with its interval, which the index holds in whole milliseconds.
type Sync struct {
	Policy   SyncPolicy
	Interval time.Duration // of SyncInterval; else 0
}

// ParseSync finds a policy by its name. The interval counts with interval alone.
func ParseSync(name string, interval time.Duration) (Sync, error) {
	for i, known := range syncPolicyNames {
		if name == known {
			s := Sync{Policy: SyncPolicy(i), Interval: interval}
			return s, s.complete()
		}
	}
	return Sync{}, fmt.Errorf("sync policy %q: %w: use none, interval or token", name, errors.ErrUnsupported)
}

// maxSyncInterval is the longest interval that the index can hold.
const maxSyncInterval = (1<<24 - 1) * time.Millisecond

func (s *Sync) complete() error {
	switch {
	case s.Policy > SyncToken:
		return fmt.Errorf("sync with %v: %w: use none, interval or token", s.Policy, errors.ErrUnsupported)
	case s.Policy == SyncInterval && (s.Interval < time.Millisecond || s.Interval > maxSyncInterval):
		return fmt.Errorf("sync every %v: %w: use 1 ms to %v", s.Interval, errors.ErrUnsupported, maxSyncInterval)
	case s.Policy != SyncInterval:
		s.Interval = 0
	}
	return nil
}

// bits is the policy as it stands in an index's header: the policy in the lowest byte, milliseconds above it.
func (s Sync) bits() uint32 { return uint32(s.Policy) | uint32(s.Interval/time.Millisecond)<<8 }

func syncOf(bits uint32) Sync {
	return Sync{Policy: SyncPolicy(bits), Interval: time.Duration(bits>>8) * time.Millisecond}
}

// Mark is a place in a stream and its index: sizes of both files, and what they hold up to there.
type Mark struct {
	StreamBytes int64  `json:"stream_bytes"`
	IndexBytes  int64  `json:"index_bytes"`
	Packets     uint64 `json:"packets"`
	Executions  uint64 `json:"executions"`
	Rows        uint64 `json:"rows"`
	Commits     uint64 `json:"commits"`
}

// mark is the place after everything that was written so far.
func (j *journal) mark() Mark {
	t := &j.footer.Totals
	return Mark{
		StreamBytes: j.before.end(), IndexBytes: j.out.end(),
		Packets: t.Packets, Executions: t.Executions, Rows: t.Rows, Commits: t.Commits,
	}
}

// syncer syncs a writer's files beside its writing.
type syncer struct {
	mu      sync.Mutex    // one sync at a time
	due     chan struct{} // with SyncToken: a commit marker was written
	stop    chan struct{}
	running sync.WaitGroup
	synced  Mark // of the last sync; queue.mu
}

// Sync waits until everything that was appended before it is on the disk, and returns the place up to which
// everything is; more may have been appended in the meantime. The model does not wait for it, and neither do
// packing and writing.
func (w *Writer) Sync() (Mark, error) {
	if err := w.Flush(); err != nil {
		return Mark{}, err
	}
	w.syncer.mu.Lock()
	defer w.syncer.mu.Unlock()
	w.queue.mu.Lock()
	flushed := w.queue.flushed
	w.queue.mu.Unlock()
	for _, o := range []*output{w.stream, w.index} { // the stream first, so that the index never describes bytes that are not there
		if err := o.sync(); err != nil {
			w.queue.mu.Lock()
			w.queue.fail(err)
			w.queue.mu.Unlock()
			return Mark{}, err
		}
	}
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	w.syncer.synced = flushed
	return flushed, nil
}

// Synced returns the place up to which everything is known to be on the disk.
func (w *Writer) Synced() Mark {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	return w.syncer.synced
}

func (w *Writer) startSyncing() {
	w.syncer.due, w.syncer.stop = make(chan struct{}, 1), make(chan struct{})
	switch w.o.Sync.Policy {
	case SyncInterval:
		w.syncer.running.Go(w.syncByTime)
	case SyncToken:
		w.syncer.running.Go(w.syncByToken)
	}
}

func (w *Writer) syncByTime() {
	ticker := time.NewTicker(w.o.Sync.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-w.syncer.stop:
			return
		case <-ticker.C:
		}
		w.queue.mu.Lock()
		synced := uint64(w.syncer.synced.StreamBytes + w.syncer.synced.IndexBytes)
		idle := w.queue.count == 0 && len(w.queue.order) == 0 && w.queue.stats.FileBytes == synced
		w.queue.mu.Unlock()
		if idle {
			continue
		}
		if _, err := w.Sync(); err != nil {
			return // it is the writer's error now, or the writer is closed
		}
	}
}

func (w *Writer) syncByToken() {
	for {
		select {
		case <-w.syncer.stop:
			return
		case <-w.syncer.due:
			if _, err := w.Sync(); err != nil {
				return
			}
		}
	}
}

// syncDue notifies the syncer of a commit marker.
func (w *Writer) syncDue() {
	if w.o.Sync.Policy != SyncToken {
		return
	}
	select {
	case w.syncer.due <- struct{}{}:
	default: // it will see this one too
	}
}
