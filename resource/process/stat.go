package process

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/shirou/gopsutil/v4/common"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/llamatap/llamatap/resource"
)

// figures are what the kernel has counted of a process since that began. Its number and start say who it is.
type figures struct {
	resource.Stat
	rss, virtual uint64
	io           *resource.ProcessIO // of children that it has waited for, too; nil: not ours to see
}

// counts are what grows while processes run, times in ticks.
type counts resource.StatCounts

// tickNS is a tick.
const tickNS = 10_000_000

func (c counts) userNS() int64   { return int64(c.User) * tickNS }
func (c counts) systemNS() int64 { return int64(c.System) * tickNS }

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
	stat, err := resource.ParseStat(text)
	if err != nil {
		return nil, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	f := &figures{Stat: stat}
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

// sameAs reports whether two readings are of the same process.
func (f *figures) sameAs(other *figures) bool { return f.ID == other.ID && f.Start == other.Start }

func (f *figures) own() counts { return counts(f.Own) }

// withWaited returns what a process and those that it has waited for have taken.
func (f *figures) withWaited() counts { return f.own().plus(counts(f.Waited)) }

func (c counts) plus(d counts) counts {
	return counts{c.Minor + d.Minor, c.Major + d.Major, c.User + d.User, c.System + d.System}
}

// since is what was added to some counts; where they went down, nothing.
func (c counts) since(d counts) counts {
	return counts{grown(c.Minor, d.Minor), grown(c.Major, d.Major), grown(c.User, d.User), grown(c.System, d.System)}
}

// atLeast is the larger of two counts, each by itself.
func (c counts) atLeast(d counts) counts {
	return counts{max(c.Minor, d.Minor), max(c.Major, d.Major), max(c.User, d.User), max(c.System, d.System)}
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
