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

// The policies. Their numbers are stored in index files.
const (
	SyncNone     SyncPolicy = iota // when the file system does it, and at the end
	SyncInterval                   // every so often
	SyncToken                      // as soon as a commit marker was written and the sync before has ended
)

var syncPolicyNames = [...]string{"none", "interval", "token"}

// String returns the policy's name as written in flags and files.
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
	o       Sync
	queue   *queue
	files   *files
	mu      sync.Mutex    // one sync at a time
	due     chan struct{} // with SyncToken: a commit marker was written
	stop    chan struct{}
	running sync.WaitGroup
	synced  Mark // of the last sync; queue.mu
}

// start starts what the policy asks for; sync is the writer's Sync.
func (s *syncer) start(sync func() (Mark, error)) {
	s.due, s.stop = make(chan struct{}, 1), make(chan struct{})
	switch s.o.Policy {
	case SyncInterval:
		s.running.Go(func() { s.byTime(sync) })
	case SyncToken:
		s.running.Go(func() { s.byToken(sync) })
	}
}

// sync syncs what was flushed, and returns its end.
func (s *syncer) sync() (Mark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.mu.Lock()
	flushed := s.queue.flushed
	s.queue.mu.Unlock()
	err := s.files.sync()
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if err != nil {
		s.queue.fail(err)
		return Mark{}, err
	}
	s.synced = flushed
	return flushed, nil
}

func (s *syncer) byTime(sync func() (Mark, error)) {
	ticker := time.NewTicker(s.o.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		s.queue.mu.Lock()
		synced := uint64(s.synced.StreamBytes + s.synced.IndexBytes)
		idle := s.queue.count == 0 && len(s.queue.order) == 0 && s.queue.stats.FileBytes == synced
		s.queue.mu.Unlock()
		if idle {
			continue
		}
		if _, err := sync(); err != nil {
			return // it is the writer's error now, or the writer is closed
		}
	}
}

func (s *syncer) byToken(sync func() (Mark, error)) {
	for {
		select {
		case <-s.stop:
			return
		case <-s.due:
			if _, err := sync(); err != nil {
				return
			}
		}
	}
}

// notify notifies the syncer of a commit marker.
func (s *syncer) notify() {
	if s.o.Policy != SyncToken {
		return
	}
	select {
	case s.due <- struct{}{}:
	default: // it will see this one too
	}
}
