package perf

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ErrSysfs occurs when a PMU's file in sysfs does not have the kernel's format.
var ErrSysfs = errors.New("a PMU's description cannot be read")

// devices is the folder in which the kernel describes PMUs.
const devices = "/sys/bus/event_source/devices"

// pmu is a PMU's folder in sysfs.
type pmu struct {
	sys  fs.FS
	name string
	kind uint32
}

// openPMU reads a PMU's type number. The error is fs.ErrNotExist if the machine has no such PMU.
func openPMU(sys fs.FS, name string) (*pmu, error) {
	p := &pmu{sys: sys, name: name}
	text, err := p.read("type")
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%w: %s/type: %w", ErrSysfs, name, err)
	}
	p.kind = uint32(n)
	return p, nil
}

// read returns the contents of a file of the PMU.
func (p *pmu) read(file string) (string, error) {
	b, err := fs.ReadFile(p.sys, path.Join(p.name, file))
	return strings.TrimSpace(string(b)), err
}

// has reports whether the PMU has a file.
func (p *pmu) has(file string) bool {
	_, err := fs.Stat(p.sys, path.Join(p.name, file))
	return err == nil
}

// event sets an attribute to a named event of the PMU.
func (p *pmu) event(a *Attr, name string) error {
	text, err := p.read("events/" + name)
	if err != nil {
		return fmt.Errorf("%w: %s has no event %q: %v", ErrSysfs, p.name, name, err)
	}
	a.Type = p.kind
	return p.set(a, text)
}

// set sets terms such as event=0xcd,umask=0x1,ldlat=3.
func (p *pmu) set(a *Attr, terms string) error {
	for term := range strings.SplitSeq(terms, ",") {
		name, text, given := strings.Cut(strings.TrimSpace(term), "=")
		value := uint64(1)
		if given {
			var err error
			if value, err = strconv.ParseUint(text, 0, 64); err != nil {
				return fmt.Errorf("%w: %s: %q: %w", ErrSysfs, p.name, term, err)
			}
		}
		if err := p.setTerm(a, name, value); err != nil {
			return err
		}
	}
	return nil
}

// setTerm sets one term in the bits that the PMU's format file names: config:0-7, config1:0-15, config:0-7,32-35.
func (p *pmu) setTerm(a *Attr, name string, value uint64) error {
	words := map[string]*uint64{"config": &a.Config, "config1": &a.Config1, "config2": &a.Config2,
		"config3": &a.Config3}
	if word := words[name]; word != nil {
		*word = value
		return nil
	}
	text, err := p.read("format/" + name)
	if err != nil {
		return fmt.Errorf("%w: %s has no term %q: %v", ErrSysfs, p.name, name, err)
	}
	which, ranges, ok := strings.Cut(text, ":")
	word := words[which]
	if !ok || word == nil {
		return fmt.Errorf("%w: %s/format/%s: %q", ErrSysfs, p.name, name, text)
	}
	for part := range strings.SplitSeq(ranges, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		lo, err1 := strconv.ParseUint(first, 10, 6)
		hi, err2 := strconv.ParseUint(last, 10, 6)
		if err1 != nil || err2 != nil || hi < lo {
			return fmt.Errorf("%w: %s/format/%s: %q", ErrSysfs, p.name, name, text)
		}
		n := hi - lo + 1
		mask := ^uint64(0) >> (64 - n)
		*word = *word&^(mask<<lo) | value&mask<<lo
		value >>= n
		if n == 64 {
			value = 0
		}
	}
	if value != 0 {
		return fmt.Errorf("%w: %s: %s does not fit into %q", ErrSysfs, p.name, name, text)
	}
	return nil
}

// precise is the highest precise_ip that the PMU supports; 2 for kernels before 4.3, which do not report it.
func (p *pmu) precise() uint64 {
	text, err := p.read("caps/max_precise")
	if err != nil {
		return 2
	}
	n, err := strconv.ParseUint(text, 10, 2)
	if err != nil {
		return 2
	}
	return n
}

// cpus are the CPUs that have the PMU; nil means all.
func (p *pmu) cpus() ([]int, error) {
	text, err := p.read("cpus")
	if errors.Is(err, fs.ErrNotExist) || text == "" {
		return nil, nil
	}
	return parseCPUs(text)
}

// named lists the PMUs whose names begin with prefix.
func named(sys fs.FS, prefix string) []string {
	entries, err := fs.ReadDir(sys, ".")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}
