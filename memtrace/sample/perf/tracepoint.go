package perf

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/memtrace"
)

// tracefs is where the kernel describes its tracepoints.
var tracefs = []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}

// tracepoint is where the fields of one lie in a sample's raw data.
type tracepoint struct {
	id                   uint64
	address, ip, errCode int
}

// readTracepoint reads the description of a tracepoint of page faults, in a tree as tracefs.
func readTracepoint(sys fs.FS, name string) (p tracepoint, err error) {
	dir := path.Join("events/exceptions", name)
	text, err := fs.ReadFile(sys, path.Join(dir, "id"))
	if err != nil {
		return p, err
	}
	if p.id, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err != nil {
		return p, fmt.Errorf("read %s/id: %w", dir, err)
	}
	format, err := fs.ReadFile(sys, path.Join(dir, "format"))
	if err != nil {
		return p, err
	}
	for name, offset := range map[string]*int{"address": &p.address, "ip": &p.ip, "error_code": &p.errCode} {
		if *offset, err = fieldOffset(string(format), name); err != nil {
			return p, fmt.Errorf("read %s/format: %w", dir, err)
		}
	}
	return p, nil
}

// fieldOffset finds a field of 8 bytes: field:unsigned long address;	offset:8;	size:8;	signed:0;
func fieldOffset(format, name string) (int, error) {
	for line := range strings.Lines(format) {
		declared, rest, _ := strings.Cut(strings.TrimSpace(line), ";")
		if !strings.HasPrefix(declared, "field:") || !strings.HasSuffix(declared, " "+name) {
			continue
		}
		var offset, size int
		if _, err := fmt.Sscanf(strings.ReplaceAll(strings.TrimSpace(rest), "\t", " "), "offset:%d; size:%d;", &offset,
			&size); err != nil || size != 8 {
			return 0, fmt.Errorf("field %s: %q", name, line)
		}
		return offset, nil
	}
	return 0, fmt.Errorf("it has no field %s", name)
}

// access reads a sample's raw data. Addresses of the kernel are none of the process's.
func (p tracepoint) access(raw []byte, a *memtrace.Access) bool {
	const write, userEnd = 1 << 1, 1 << 56
	if max(p.address, p.ip, p.errCode)+8 > len(raw) {
		return false
	}
	le := binary.LittleEndian
	a.Addr, a.IP, a.Op = le.Uint64(raw[p.address:]), le.Uint64(raw[p.ip:]), memtrace.OpRead
	if le.Uint64(raw[p.errCode:])&write != 0 {
		a.Op = memtrace.OpWrite
	}
	return a.Addr < userEnd
}

// openTracepoints begins to sample page faults by the kernel's tracepoints, which distinguish reads and writes.
func openTracepoints(o SamplerOptions) (*Sampler, error) {
	var err error
	for _, dir := range tracefs {
		var points []tracepoint // by event
		var events []eventSpec
		for _, name := range []string{"page_fault_user", "page_fault_kernel"} {
			var p tracepoint
			if p, err = readTracepoint(os.DirFS(dir), name); err != nil {
				break
			}
			points = append(points, p)
			events = append(events, eventSpec{Name: "exceptions:" + name, Attr: Attr{Type: typeTracepoint, Config: p.id,
				Period: 1, SampleType: faultSample | sampleRaw}})
		}
		if err != nil {
			continue
		}
		s := &Sampler{Ops: true, access: func(r *Record, a *memtrace.Access) bool {
			*a = r.Sample.Access(faultSample, 1, memtrace.CollectorFault)
			return points[r.Event].access(r.Sample.Raw, a)
		}}
		s.Session, err = Open(o.session(events, false))
		return s, err
	}
	return nil, err
}
