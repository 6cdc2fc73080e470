package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/shirou/gopsutil/v4/common"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/llamatap/llamatap/resource"
)

// figures are what the kernel has counted of a process since that began.
type figures struct {
	pid, parent  int
	name         string
	start        uint64 // ticks since the machine started: with the number it says who the process is
	ended        bool   // nobody has waited for it yet
	rss, virtual uint64
	threads      int
	own          counts
	waited       counts              // of children that it has waited for, and of theirs
	io           *resource.ProcessIO // theirs included; nil: not ours to see
}

// counts are what grows while processes run.
type counts struct {
	user, system int64 // ns
	minor, major uint64
}

// tickNS is the unit of times in /proc/PID/stat: USER_HZ is 100 on every architecture that Go runs on.
const tickNS = 10_000_000

// host is a tree with proc and sys in it.
type host struct {
	files fs.FS
	proc  context.Context // holds gopsutil's path of proc
}

// newHost is the tree of a folder.
func newHost(root string) host {
	place := common.EnvMap{common.HostProcEnvKey: filepath.Join(root, "proc"),
		common.HostSysEnvKey: filepath.Join(root, "sys")}
	return host{os.DirFS(root), context.WithValue(context.Background(), common.EnvKey, place)}
}

// read reads the figures of a process: stat once, and what stat does not have.
func (h host) read(pid int) (*figures, error) {
	text, err := fs.ReadFile(h.files, "proc/"+strconv.Itoa(pid)+"/stat")
	if err != nil {
		return nil, err
	}
	f, err := parseStat(text)
	if err != nil {
		return nil, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	p := process.Process{Pid: int32(pid)}
	// what stat says of it is a guess, for the kernel adds up per processor
	memory, err := p.MemoryInfoWithContext(h.proc)
	if err != nil {
		return nil, err
	}
	f.rss, f.virtual = memory.RSS, memory.VMS
	if c, err := p.IOCountersWithContext(h.proc); err == nil {
		f.io = &resource.ProcessIO{
			ReadBytes: c.ReadBytes, WriteBytes: c.WriteBytes, ReadCalls: c.ReadCount, WriteCalls: c.WriteCount,
			DiskReadBytes: c.DiskReadBytes, DiskWriteBytes: c.DiskWriteBytes,
		}
	}
	return f, nil
}

// errStat occurs when a text is none of /proc/PID/stat.
var errStat = errors.New("it does not have the fields described in proc(5)")

// The fields of /proc/PID/stat behind the name, by their numbers in proc(5).
const (
	statParent  = 4
	statMinor   = 10
	statMajor   = 12
	statUser    = 14
	statSystem  = 15
	statThreads = 20
	statStart   = 22
)

// parseStat takes the text of /proc/PID/stat apart.
func parseStat(text []byte) (*figures, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')') // the name may hold anything
	if open < 0 || end < open {
		return nil, errStat
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) <= statStart-3 {
		return nil, errStat
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:open])))
	number := func(field int) uint64 {
		n, wrong := strconv.ParseUint(string(fields[field-3]), 10, 64)
		if wrong != nil {
			err = errStat
		}
		return n
	}
	state := fields[0][0]
	f := &figures{
		pid: pid, parent: int(number(statParent)), name: string(text[open+1 : end]), start: number(statStart),
		ended:   state == 'Z' || state == 'X',
		threads: int(number(statThreads)),
		own: counts{int64(number(statUser)) * tickNS, int64(number(statSystem)) * tickNS, number(statMinor),
			number(statMajor)},
		waited: counts{int64(number(statUser+2)) * tickNS, int64(number(statSystem+2)) * tickNS, number(statMinor + 1),
			number(statMajor + 1)},
	}
	if err != nil {
		return nil, errStat
	}
	return f, nil
}

// is reports whether two readings are of the same process.
func (f *figures) is(other *figures) bool { return f.pid == other.pid && f.start == other.start }

// all is what a process and those that it has waited for have taken.
func (f *figures) all() counts { return f.own.plus(f.waited) }

func (c counts) plus(d counts) counts {
	return counts{c.user + d.user, c.system + d.system, c.minor + d.minor, c.major + d.major}
}

// since is what was added to some counts; where they went down, nothing.
func (c counts) since(d counts) counts {
	return counts{max(c.user-d.user, 0), max(c.system-d.system, 0), grown(c.minor, d.minor), grown(c.major, d.major)}
}

// atLeast is the larger of two counts, each by itself.
func (c counts) atLeast(d counts) counts {
	return counts{max(c.user, d.user), max(c.system, d.system), max(c.minor, d.minor), max(c.major, d.major)}
}

func grown(now, before uint64) uint64 { return max(now, before) - before }

// ioSince is what was added to counters; where they went down, nothing.
func ioSince(now, before resource.ProcessIO) resource.ProcessIO {
	return resource.ProcessIO{
		ReadBytes: grown(now.ReadBytes, before.ReadBytes), WriteBytes: grown(now.WriteBytes, before.WriteBytes),
		ReadCalls: grown(now.ReadCalls, before.ReadCalls), WriteCalls: grown(now.WriteCalls, before.WriteCalls),
		DiskReadBytes:  grown(now.DiskReadBytes, before.DiskReadBytes),
		DiskWriteBytes: grown(now.DiskWriteBytes, before.DiskWriteBytes),
	}
}

// ioPlus is the sum of counters.
func ioPlus(a, b resource.ProcessIO) resource.ProcessIO {
	return resource.ProcessIO{
		ReadBytes: a.ReadBytes + b.ReadBytes, WriteBytes: a.WriteBytes + b.WriteBytes, ReadCalls: a.ReadCalls +
			b.ReadCalls, WriteCalls: a.WriteCalls + b.WriteCalls,
		DiskReadBytes: a.DiskReadBytes + b.DiskReadBytes, DiskWriteBytes: a.DiskWriteBytes + b.DiskWriteBytes,
	}
}
