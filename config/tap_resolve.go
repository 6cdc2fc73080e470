package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/cli"
)

// Source is where a setting's value came from, by rising precedence.
type Source uint8

// The sources.
const (
	FromDefault Source = iota
	FromPreset         // a preset, a purpose, or implied by another setting
	FromFile
	FromEnvironment
	FromFlag
)

var sourceNames = [...]string{"default", "preset", "file", "environment", "flag"}

// String returns the source's name as Echo writes it.
func (s Source) String() string { return sourceNames[s] }

// given is one value as somebody wrote it.
type given struct {
	text  string
	where string // --tap-codec, LLAMATAP_CODEC, tap.yaml:3:5, preset balanced
}

// origin remembers where a value came from.
type origin struct {
	source Source
	where  string
}

// ResolveOptions says what Resolve may look at. Its zero value reads the process's environment and the file system.
type ResolveOptions struct {
	LookupEnv func(string) (string, bool)              // default os.LookupEnv
	Environ   func() []string                          // default os.Environ, unless LookupEnv is given
	Open      func(name string) (io.ReadCloser, error) // default os.Open
	// Architecture is the model's general.architecture, which --tap-purpose depends on; "" if it is not known yet.
	Architecture string
}

// Resolve gathers every source by precedence, parses and checks all values, and fills t's fields. Every value is
// parsed, also one that a higher source overrides. It may be called again, for example with the architecture.
// Errors are one line with cause and remedy, and are usage errors.
func (t *Tap) Resolve(o ResolveOptions) error {
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
		if o.Environ == nil {
			o.Environ = os.Environ
		}
	}
	if o.Environ != nil {
		if err := checkEnviron(o.Environ()); err != nil {
			return err
		}
	}
	if o.Open == nil {
		o.Open = func(name string) (io.ReadCloser, error) { return os.Open(name) }
	}
	*t = Tap{flags: t.flags}
	s, err := gather(t.flags, o)
	if err != nil {
		return err
	}
	if err := s.choosePreset(); err != nil {
		return err
	}
	t.recorders = imply(s.recorders())
	t.alone = !slices.ContainsFunc([]string{"preset", "purpose", "granularity", "layers", "tensors", "points"}, s.has)
	if t.MemoryCeiling, t.Reason, err = s.preset(o.Architecture); err != nil {
		return err
	}
	t.origins = make(map[string]origin)
	for source := FromDefault; source <= FromFlag; source++ {
		for i := range tapOptions {
			o := &tapOptions[i]
			g, ok := s[source][o.name]
			if !ok {
				continue
			}
			if err := o.setText(t, g.text); err != nil {
				return fmt.Errorf("%s: %w", g.where, err)
			}
			t.origins[o.name] = origin{source, g.where}
		}
	}
	if err := (checker{t, s}).check(); err != nil {
		return err
	}
	t.Regions = t.Records(Regions)
	return nil
}

// checkEnviron refuses a variable that is a setting's but for a typing error: with it nothing would be recorded,
// silently.
func checkEnviron(environ []string) error {
	var names []string
	for i := range tapOptions {
		for _, name := range tapOptions[i].envs() {
			if name, ours := strings.CutPrefix(name, envPrefix); ours {
				names = append(names, name)
			}
		}
	}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		name, ours := strings.CutPrefix(name, envPrefix)
		if !ours || value == "" || slices.Contains(names, name) {
			continue
		}
		if near := cli.Nearest(name, names); near != "" && cli.EditDistance(name, near) <= 2 {
			return fmt.Errorf("environment variable %s: there is no such setting: did you mean %s?", envPrefix+name,
				envPrefix+near)
		}
	}
	return nil
}

// sources holds the given values of each source, by option name.
type sources [FromFlag + 1]map[string]given

// top returns the highest source from FromFile up that gives the option.
func (s *sources) top(name string) (Source, given, bool) {
	for source := FromFlag; source >= FromFile; source-- {
		if g, ok := s[source][name]; ok {
			return source, g, true
		}
	}
	return FromDefault, given{}, false
}

func (s *sources) has(name string) bool {
	_, _, found := s.top(name)
	return found
}

// drop removes what every user source says of an option.
func (s *sources) drop(name string) {
	for source := FromFile; source <= FromFlag; source++ {
		delete(s[source], name)
	}
}

// gather collects what each source gives.
func gather(flags map[string]given, o ResolveOptions) (*sources, error) {
	var s sources
	for i := range s {
		s[i] = make(map[string]given)
	}
	for i := range tapOptions {
		opt := &tapOptions[i]
		if opt.byDef != "" {
			s[FromDefault][opt.name] = given{opt.byDef, "default"}
		}
		for _, name := range slices.Backward(opt.envs()) {
			if value, ok := o.LookupEnv(name); ok && value != "" {
				s[FromEnvironment][opt.name] = given{value, name}
			}
		}
		if value, ok := flags[opt.name]; ok {
			s[FromFlag][opt.name] = value
		}
	}
	if _, file, ok := s.top("config"); ok {
		var err error
		if s[FromFile], err = openFile(file, o.Open); err != nil {
			return nil, err
		}
	}
	if off, ok := o.LookupEnv(envResourceDisabled); ok &&
		!slices.Contains([]string{"", "0", "false", "no", "off"}, strings.ToLower(off)) {
		for _, from := range s { // it wins over the flag, too
			delete(from, "resource-level")
		}
		if len(s.recorders()) == 0 { // nothing is recorded, as that system's users expect, and no flag is at fault
			clear(s[FromFlag])
		}
	}
	return &s, nil
}

func openFile(file given, open func(string) (io.ReadCloser, error)) (map[string]given, error) {
	f, err := open(file.text)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no file %q: give an existing YAML file", file.where, file.text)
	case err != nil:
		return nil, fmt.Errorf("%s: %w: give a readable YAML file", file.where, err)
	}
	defer f.Close()
	return loadFile(file.text, f)
}

// choosePreset settles between preset and purpose.
func (s *sources) choosePreset() error {
	presetSource, preset, hasPreset := s.top("preset")
	purposeSource, purpose, hasPurpose := s.top("purpose")
	switch {
	case hasPreset && hasPurpose && presetSource == purposeSource:
		return fmt.Errorf("%s and %s contradict each other, for a purpose picks the preset: drop one", preset.where,
			purpose.where)
	case hasPreset && hasPurpose && presetSource > purposeSource:
		s.drop("purpose")
	case hasPreset && hasPurpose:
		s.drop("preset")
	}
	return nil
}

// isOff reports whether a value switches a recorder off.
func isOff(name, value string) bool {
	return slices.Contains([]string{"attention", "kv", "requests", "otlp", "regions", "ledger"}, name) &&
		slices.Contains([]string{"off", "false", "0"}, value)
}

// recorders lists the recorders that a user source starts.
func (s *sources) recorders() []Recorder {
	var running []Recorder
	for i := range tapOptions {
		o := &tapOptions[i]
		_, g, ok := s.top(o.name)
		if !ok || o.role != roleRecorder || slices.Contains(running, o.recorder) {
			continue
		}
		if isOff(o.name, g.text) {
			continue
		}
		running = append(running, o.recorder)
	}
	// A run that begins with the tap off captures what it is asked for later (ctl).
	if g, ok := s[FromFlag]["start"]; ok && g.text == "off" && !slices.Contains(running, Activations) {
		running = append(running, Activations)
	}
	return running
}

// preset turns a preset or a purpose into values of rank FromPreset. It returns the ceiling of memory, and what a
// purpose chose, and why.
func (s *sources) preset(arch string) (ceiling Bytes, reason string, err error) {
	set := s[FromPreset]
	if _, g, ok := s.top("purpose"); ok {
		purpose, err := parsePurpose(g.text)
		if err != nil {
			return 0, "", fmt.Errorf("%s: %w", g.where, err)
		}
		p, reason := suggest(arch, purpose)
		p.fill(set, "purpose "+g.text)
		return p.MemoryCeiling, reason, nil
	}
	if _, g, ok := s.top("preset"); ok {
		p, err := parsePreset(g.text)
		if err != nil {
			return 0, "", fmt.Errorf("%s: %w", g.where, err)
		}
		p.fill(set, "preset "+p.Name)
		set["preset"] = given{p.Name, g.where}
		return p.MemoryCeiling, "", nil
	}
	return 0, "", nil
}

// fill states the preset's settings as somebody would write them.
func (p Preset) fill(set map[string]given, where string) {
	set["preset"] = given{p.Name, where}
	set["granularity"] = given{p.Granularity.String(), where}
	set["codec"] = given{p.Codec, where}
	set["throughput"] = given{fmt.Sprint(p.Throughput), where}
}

// Resuming returns the interrupted run that the flags ask to resume, before Resolve; "" is none.
func (t *Tap) Resuming() string { return t.flags["resume"].text }

// OnlyResumes reports whether no other flag of the tap was given than the one that resumes, and where runs are.
func (t *Tap) OnlyResumes() bool {
	for name := range t.flags {
		if name != "resume" && name != "out" {
			return false
		}
	}
	return t.Resuming() != ""
}

// Parse takes the tap's flags out of args, keeps them, and returns the other arguments as they were.
func (t *Tap) Parse(args []string) (rest []string, err error) {
	tap, rest, err := SplitTapArgs(args)
	if err != nil {
		return nil, err
	}
	for _, arg := range tap {
		name, value, _ := strings.Cut(arg, "=")
		if t.flags == nil {
			t.flags = make(map[string]given)
		}
		t.flags[findFlag(name).name] = given{value, name}
	}
	return rest, nil
}
