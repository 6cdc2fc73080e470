package sched

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cilium/ebpf/link"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// programs are the BPF programs that keep accounts of threads.
type programs struct {
	*bpf.Set
	table   *table
	each    *link.Iter // lists the threads that are there; nil without BTF
	walk    *walker    // lists them from /proc; nil with BTF
	follow  bool       // the programs add processes to the target
	lost    uint64
	history map[threadKey]*history
}

// loadPrograms loads and attaches the programs, which list threads by walk where the kernel has no BTF.
func loadPrograms(of Options, plain bool, walk *walker) (*programs, error) {
	spec, err := bpf.Object("sched")
	if err != nil {
		return nil, err
	}
	o := bpf.Options{
		Target: of.Target, Plain: plain, Manual: []string{"each_task"},
		Optional: []string{"on_fault", "on_fault_plain"},
	}
	k := knownKernel()
	o.Set = map[string]any{"switch_has_state": k.switchHasState, "queues_known": k.queues, "follow": of.Follow}
	if k.queues {
		o.Manual = append(o.Manual, "on_wakeup") // not attached
	}
	size := tableSize(of.Threads)
	o.Set["threads_mask"] = size - 1
	o.MaxEntries = map[string]uint32{"threads": size, "claims": 2*size + 256}
	set, err := bpf.Load(spec, o)
	if err != nil {
		return nil, err
	}
	p := &programs{Set: set, walk: walk, follow: of.Follow, history: map[threadKey]*history{}}
	if p.table, err = openTable(set, size); err != nil {
		return nil, errors.Join(err, set.Close())
	}
	if !set.Plain {
		if p.each, err = link.AttachIter(link.IterOptions{Program: set.Program("each_task")}); err != nil {
			return nil, errors.Join(fmt.Errorf("attach each_task: %w", err), set.Close())
		}
		set.Keep(p.each)
	}
	return p, nil
}

// read reports all threads by their accounts.
func (p *programs) read(m moment, losses *resource.SystemLosses) ([]spent, error) {
	if err := p.Map("epoch").Put(uint32(0), m.epoch+1); err != nil {
		return nil, fmt.Errorf("begin an interval: %w", err)
	}
	there, err := p.present(m.now)
	if err != nil {
		return nil, err
	}
	threadTimes := make([]spent, 0, len(there))
	// The histories move to a new map at each snapshot: a map that entries are deleted from never shrinks.
	next := make(map[threadKey]*history, len(there))
	err = p.table.each(func(index uint32, key threadKey) error {
		t := p.history[key]
		if t == nil {
			t = &history{}
		}
		next[key] = t
		a, ok, err := p.table.read(index, key)
		if !ok {
			losses.Unsteady++
			return err
		}
		s, ok := t.advance(key.TID, &a, there[key], m)
		if !ok {
			return nil
		}
		threadTimes = append(threadTimes, s)
		if there[key] == nil && s.line.Ended {
			delete(next, key)
			return p.table.free(index, key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for key := range there {
		if t := p.history[key]; t != nil && next[key] == nil {
			next[key] = t
		}
	}
	p.history = next
	total, err := bpf.Sum(p.Map("lost"), 0)
	losses.Threads, p.lost = total-p.lost, total
	return threadTimes, err
}

// unknown is UNKNOWN of account.h.
const unknown = math.MaxUint64

// record is struct thread_record of sched.bpf.c.
type record struct {
	Key          threadKey
	TGID         uint32
	_            uint32
	Queued       uint64
	Minor, Major uint64
	Comm         [16]byte
}

// present returns the threads that are there, and opens accounts for those that have none.
func (p *programs) present(now int64) (map[threadKey]*present, error) {
	if p.each == nil {
		return p.presentPlain(now)
	}
	reader, err := p.each.Open()
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	defer reader.Close()
	byThread := make(map[threadKey]*present, len(p.history))
	text := make([]byte, binary.Size(record{}))
	for from := bufio.NewReaderSize(reader, 1<<16); ; {
		if _, err := io.ReadFull(from, text); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("list threads: %w", err)
		}
		var r record
		if _, err := binary.Decode(text, binary.NativeEndian, &r); err != nil {
			return nil, fmt.Errorf("list threads: %w", err)
		}
		one := &present{tgid: r.TGID, counted: true, minor: r.Minor, major: r.Major, comm: commText(r.Comm)}
		if r.Queued != unknown {
			one.queued = int64(min(r.Queued, math.MaxInt64))
		}
		byThread[r.Key] = one
	}
	return byThread, nil
}

// presentPlain does what each_task does, where the kernel's types are unknown: it lists the threads from /proc, and
// opens accounts for those that have none. What such a one does at first is guessed from the letter of its state: R
// is computing, D waits for a disk, all else idles.
func (p *programs) presentPlain(now int64) (map[threadKey]*present, error) {
	if p.follow {
		if m := p.Map("target_pids"); m != nil { // the programs have added processes to the target
			if err := bpf.Each(m, func(pid uint32, _ uint8) { p.walk.add(int(pid)) }); err != nil {
				return nil, err
			}
		}
	}
	threads, err := p.walk.threads()
	if err != nil {
		return nil, err
	}
	byThread := make(map[threadKey]*present, len(threads))
	for _, s := range threads {
		key := threadKey{TID: uint32(s.ID)}
		byThread[key] = &present{tgid: uint32(s.tgid), counted: true, minor: s.Own.Minor, major: s.Own.Major,
			comm: s.Name}
		if p.history[key] != nil {
			continue
		}
		state := uint64(idle)
		switch s.State {
		case 'R':
			state = onCPU
		case 'D':
			state = blockedDisk
		}
		a := accounts{
			Born: uint64(now), Mark: uint64(now)<<stateBits | state, TGID: uint32(s.tgid), Call: -1,
			MinorFirst: s.Own.Minor, MajorFirst: s.Own.Major,
		}
		if s.ofKernel() {
			a.Call = callOfKernel
		}
		if err := p.table.begin(key, a); err != nil {
			return nil, err
		}
	}
	return byThread, nil
}
