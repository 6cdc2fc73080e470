package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/present"
	"golang.org/x/mod/semver"
)

// Topics of this file.
const (
	engineTopic = "llama.cpp"
	entryTopic  = "entry points" // of llama.cpp, that the tap stands before or calls
)

// engine looks at the llama.cpp that this binary was built for.
func engine(o Options) []Fact {
	library := Fact{Topic: engineTopic, Name: "library"}
	in, err := llama.Installed()
	if err != nil {
		return []Fact{library.with(Missing, "this llamatap was built without llama.cpp").
			lacking("no recording; what was recorded elsewhere can be read", "make build, on Linux")}
	}
	commit := ""
	ggml, built := llama.GGMLVersion()
	if built != "" && built != "unknown" {
		commit = ", commit " + built
	}
	library = tested(library.with(OK, fmt.Sprintf("llama.cpp %s, ggml %s%s", llama.Version(), ggml, commit)),
		llama.Version())
	facts := []Fact{
		library,
		{Topic: engineTopic, Name: "prefix", Status: OK, Value: in.LibDir},
	}
	return slices.Concat(facts, []Fact{loadable(in)}, devices(o), loaded(o.Root, in), functions(in))
}

// The first and the last version of llama.cpp that every recorder is tested with.
const firstTested, lastTested = "0.5.0", "0.7.0"

// tested limits the fact of a library whose version is outside of those. Development versions (0.5.0-dev) count as
// the version that they lead to.
func tested(f Fact, version string) Fact {
	is := semver.MajorMinor("v" + version)
	if is != "" && semver.Compare(is, semver.MajorMinor("v"+firstTested)) >= 0 &&
		semver.Compare(is, semver.MajorMinor("v"+lastTested)) <= 0 {
		return f
	}
	return f.with(Limited, f.Value+"; tested are "+firstTested+" to "+lastTested).
		lacking("what the tap finds at its start not to be as in those is not recorded; metadata.json names it "+
			"(structures_unknown, entry_points_missing)", "make LLAMA_PREFIX=… with one of those, or make build for "+
			"Debian's")
}

// functions looks for the tap's entry points in llama.cpp's libraries, a fact per kind of evidence.
func functions(in llama.Installation) []Fact {
	defines := map[string]bool{}
	for _, name := range []string{"libllama.so", "libggml.so", "libggml-base.so"} {
		l, err := open(filepath.Join(in.LibDir, name))
		if err != nil {
			return unseen(err)
		}
		for symbol := range l.defines {
			defines[symbol] = true
		}
		l.file.Close()
	}
	return found(defines)
}

// unseen is what is known of entry points where a library cannot be read.
func unseen(err error) []Fact {
	var facts []Fact
	for _, e := range entries {
		facts = append(facts, Fact{Topic: entryTopic, Name: e.name}.unknown(err))
	}
	return facts
}

// found compares what the libraries define with what the tap looks for.
func found(defines map[string]bool) []Fact {
	var facts []Fact
	for _, e := range entries {
		var lack []string
		for _, name := range e.functions {
			if !defines[name] {
				lack = append(lack, name)
			}
		}
		f := Fact{Topic: entryTopic, Name: e.name, Status: OK, Value: fmt.Sprintf("all %d found", len(e.functions))}
		if len(lack) > 0 {
			f = f.with(Missing, fmt.Sprintf("%d of %d found: no %s", len(e.functions)-len(lack), len(e.functions),
				strings.Join(lack, ", ")))
		}
		facts = append(facts, f.lacking(e.costs,
			"make LLAMA_PREFIX=… with llama.cpp "+lastTested+", or make build for Debian's"))
	}
	return facts
}

// loadable lists the backends that lie in their folder; where there is none, they are part of the library.
func loadable(in llama.Installation) Fact {
	f := Fact{Topic: engineTopic, Name: "backends"}
	if in.Backends == "" {
		return f.with(OK, "backends are linked into the library")
	}
	names, err := filepath.Glob(filepath.Join(in.Backends, "libggml-*.so"))
	if _, unreadable := os.ReadDir(in.Backends); err == nil {
		err = unreadable
	}
	if err != nil {
		return f.unknown(err)
	}
	kinds := map[string]int{}
	for _, name := range names {
		kind, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "libggml-"), ".so"), "-")
		kinds[kind]++
	}
	var list []string
	for kind, n := range kinds {
		list = append(list, kind)
		if n > 1 {
			list[len(list)-1] = fmt.Sprintf("%s (%d variants)", kind, n)
		}
	}
	slices.Sort(list)
	if len(list) == 0 {
		return f.with(Missing, "none in "+in.Backends).
			lacking("nothing can compute", "make build again, or check LLAMA_PREFIX")
	}
	return f.with(OK, strings.Join(list, ", ")+" in "+in.Backends)
}

// ErrUndecided occurs when llama.cpp cannot be asked for its devices, rather than having none.
var ErrUndecided = errors.New("llama.cpp's devices are not known")

// devices lists what llama.cpp computes on.
func devices(o Options) []Fact {
	f := Fact{Topic: engineTopic, Name: "devices"}
	if o.Devices == nil {
		return nil
	}
	all, err := o.Devices()
	if errors.Is(err, ErrUndecided) {
		return []Fact{f.unknown(err)}
	}
	if err != nil {
		return []Fact{f.with(Missing, oneLine(err.Error())).
			lacking("no recording: llama.cpp computes nothing", "make build again, or check LLAMA_PREFIX")}
	}
	gpu := Fact{Topic: engineTopic, Name: "gpu", Status: Missing, Value: "none"}
	var names []string
	for _, d := range all {
		names = append(names, describe(d))
		if d.Kind == llama.DeviceGPU || d.Kind == llama.DeviceIGPU {
			gpu = gpu.with(OK, describe(d))
		}
	}
	return []Fact{
		f.with(OK, strings.Join(names, "; ")),
		gpu.lacking("models compute on the CPU", "for Vulkan, GGML_BACKEND_PATH as docs/INSTALL.md has it; for CUDA "+
			"and HIP, llamatap's source and make LLAMA_PREFIX=… with a build for the GPU"),
	}
}

// describe names a device and its memory.
func describe(d llama.Device) string {
	text := d.Name
	if d.Description != "" && d.Description != d.Name {
		text += " (" + strings.TrimSpace(d.Description) + ")"
	}
	if d.TotalBytes > 0 && d.Kind != llama.DeviceCPU { // ggml calls all of a machine's memory free
		text += ", " + present.Bytes(d.FreeBytes) + " of " + present.Bytes(d.TotalBytes) + " free"
	}
	return text
}

// loaded says which dynamic loader and which C library this process runs with.
func loaded(root fs.FS, in llama.Installation) []Fact {
	loader := Fact{Topic: engineTopic, Name: "loader"}
	libc := Fact{Topic: engineTopic, Name: "glibc"}
	text, err := word(root, "proc/self/maps")
	if err != nil {
		return []Fact{loader.unknown(err), libc.unknown(err)}
	}
	whose := func(path string) string {
		for _, dir := range append(filepath.SplitList(in.LibPath), filepath.Dir(in.Loader)) {
			if in.Loader != "" && sameFolder(dir, filepath.Dir(path)) {
				return path + ", brought along by llamatap"
			}
		}
		return path + ", this machine's"
	}
	if path := mapped(text, "ld-linux", "ld64", "ld-musl", "ld.so"); path != "" {
		loader = loader.with(OK, whose(path))
	} else {
		loader = loader.with(Unknown, "none is mapped in this process")
	}
	path := mapped(text, "libc.so", "libc-")
	if path == "" {
		return []Fact{loader, libc.with(Unknown, "no C library is mapped in this process")}
	}
	version, err := glibc(path)
	if err != nil {
		return []Fact{loader, libc.unknown(err)}
	}
	return []Fact{loader, libc.with(OK, version+" in "+whose(path))}
}

// mapped finds a file in /proc/self/maps by the start of its name.
func mapped(maps string, starts ...string) string {
	for line := range strings.Lines(maps) {
		at := strings.Index(line, "/")
		if at < 0 {
			continue
		}
		path := strings.TrimSpace(line[at:])
		for _, start := range starts {
			if strings.HasPrefix(filepath.Base(path), start) {
				return path
			}
		}
	}
	return ""
}

// object looks at the tap as a program preloads it.
func object(place func() (string, error)) Fact {
	f := Fact{Topic: "tap", Name: "object"}
	if runtime.GOOS != "linux" {
		return f.with(Missing, "there is none for "+runtime.GOOS).
			lacking("no recording; what was recorded elsewhere can be read", "record on Linux")
	}
	const costs, remedy = "no recording of llama.cpp's own programs, nor with exec",
		"make build, which makes it beside the binary"
	path, err := place()
	if err != nil {
		return f.unknown(err)
	}
	l, err := open(path)
	switch {
	case absentFile(path):
		return f.with(Missing, path+" is not there").lacking(costs, remedy)
	case errors.Is(err, fs.ErrPermission):
		return f.with(Missing, oneLine(err.Error())).lacking(costs, "make it readable for this user")
	case err != nil:
		return f.with(Missing, oneLine(err.Error())).lacking(costs, remedy)
	}
	defer l.file.Close()
	got, err := l.numbers("tap_build", 2)
	if want := tapBuild(); err != nil || !slices.Equal(got, want[:]) {
		return f.with(Missing,
			fmt.Sprintf("%s is not of this llamatap, whose shared memory has version %d and a header of %d bytes", path,
				want[0], want[1])).
			lacking(costs, remedy)
	}
	return f.with(OK, fmt.Sprintf("%s, for shared memory version %d", path, got[0]))
}

func absentFile(path string) bool {
	_, err := os.Stat(path)
	return absent(err)
}
