package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
)

// plainSuffix ends the names of programs that stand in where the kernel has no BTF.
const plainSuffix = "_plain"

// Options say how a collector's programs are loaded.
type Options struct {
	Target Target
	// Plain takes the programs for kernels without BTF though this kernel has it. LLAMATAP_BPF=plain in the
	// environment does the same.
	Plain bool
	// Optional names programs whose hook a kernel may lack. What could not be attached is in Set.Absent.
	Optional []string
	// Set sets constants of the object (const volatile in C) by name before it is loaded.
	Set map[string]any
	// MaxEntries sets the size of maps by name before they are made.
	MaxEntries map[string]uint32
	// Manual names programs that the collector attaches itself.
	Manual []string
}

// TakesPlain reports whether the programs for kernels without BTF are used.
func (o Options) TakesPlain() bool {
	return o.Plain || os.Getenv("LLAMATAP_BPF") == "plain" || kernelTypes() != nil
}

// A Set is a loaded and attached collection of programs.
type Set struct {
	// Plain is true if the programs for kernels without BTF run.
	Plain bool
	// Absent holds why an optional program does not run, by its name.
	Absent map[string]error

	collection *ebpf.Collection
	links      []link.Link
	byPID      bool
}

var lockedMemory = sync.OnceValue(rlimit.RemoveMemlock)

// kernelTypes checks once whether the kernel has BTF.
var kernelTypes = sync.OnceValue(func() error {
	_, err := btf.LoadKernelSpec()
	return err
})

// Object returns the programs and maps of a collector, which scripts/generate-bpf compiled for this processor.
func Object(name string) (*ebpf.CollectionSpec, error) {
	object, err := objects.ReadFile("objects/" + name + "_" + Processor + ".o")
	if err != nil {
		return nil, fmt.Errorf("BPF object: %w", err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("BPF object of %s: %w", name, err)
	}
	return spec, nil
}

// Load loads and attaches all programs of an object. Its errors wrap ErrMissing and say how to get what is missing.
func Load(spec *ebpf.CollectionSpec, o Options) (*Set, error) {
	s := &Set{Absent: map[string]error{}}
	_ = lockedMemory() // kernels from 5.11 on charge a cgroup instead; where it is needed and refused, loading says so
	s.Plain = o.TakesPlain()
	spec = spec.Copy()
	twins := map[string]bool{}
	for name := range spec.Programs {
		twins[name] = true
	}
	for name, p := range spec.Programs {
		plain := strings.HasSuffix(name, plainSuffix)
		if plain && !s.Plain || !plain && s.Plain && (p.Type == ebpf.Tracing || twins[name+plainSuffix]) {
			delete(spec.Programs, name)
		}
	}
	if err := o.Target.apply(spec, s.Plain); err != nil {
		return nil, err
	}
	for name, value := range o.Set {
		v, ok := spec.Variables[name]
		if !ok {
			return nil, fmt.Errorf("the object has no constant %s", name)
		}
		if err := v.Set(value); err != nil {
			return nil, fmt.Errorf("set constant %s: %w", name, err)
		}
	}
	for name, n := range o.MaxEntries {
		m, ok := spec.Maps[name]
		if !ok {
			return nil, fmt.Errorf("the object has no map %s", name)
		}
		m.MaxEntries = n
	}
	return s, s.load(spec, o)
}

func (s *Set) load(spec *ebpf.CollectionSpec, o Options) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for s.collection == nil {
		s.collection, err = ebpf.NewCollection(spec)
		if err == nil {
			break
		}
		// A hook of this kernel that is not there makes the whole collection fail: without the optional program it
		// is tried again.
		name := named(err, o.Optional, spec)
		if name == "" {
			return explain("load BPF programs", err)
		}
		s.Absent[name] = explain("load "+name, err)
		delete(spec.Programs, name)
	}
	if err := o.Target.fill(s.collection); err != nil {
		return err
	}
	s.byPID = o.Target.byPID()
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		if slices.Contains(o.Manual, name) {
			continue
		}
		l, err := attach(spec.Programs[name], s.collection.Programs[name])
		switch {
		case err == nil:
			s.links = append(s.links, l)
		case slices.Contains(o.Optional, name):
			s.Absent[name] = explain("attach "+name, err)
		default:
			return explain("attach "+name, err)
		}
	}
	return nil
}

// named returns the optional program that an error of loading speaks of.
func named(err error, optional []string, spec *ebpf.CollectionSpec) string {
	for _, name := range optional {
		if spec.Programs[name] != nil && strings.Contains(err.Error(), "program "+name+":") {
			return name
		}
	}
	return ""
}

// attach puts a program to the hook that its section names.
func attach(spec *ebpf.ProgramSpec, p *ebpf.Program) (link.Link, error) {
	switch spec.Type {
	case ebpf.Tracing:
		return link.AttachTracing(link.TracingOptions{Program: p})
	case ebpf.TracePoint:
		group, name, ok := strings.Cut(spec.AttachTo, "/")
		if !ok {
			return nil, fmt.Errorf("section %s names no tracepoint", spec.SectionName)
		}
		return link.Tracepoint(group, name, p, nil)
	case ebpf.RawTracepoint:
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: spec.AttachTo, Program: p})
	}
	return nil, fmt.Errorf("programs of type %s are not attached by name", spec.Type)
}

// Map returns a map of the object; nil where it has none of that name.
func (s *Set) Map(name string) *ebpf.Map { return s.collection.Maps[name] }

// Program returns a program that was loaded; nil where it was not.
func (s *Set) Program(name string) *ebpf.Program { return s.collection.Programs[name] }

// Keep makes Close close a link that the collector attached itself.
func (s *Set) Keep(l link.Link) { s.links = append(s.links, l) }

// Close detaches and frees everything.
func (s *Set) Close() error {
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	s.links = nil
	if s.collection != nil {
		s.collection.Close()
	}
	return errors.Join(errs...)
}
