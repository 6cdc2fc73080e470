//go:build linux

package oracle

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestExecRefused: what cannot be run or tapped is reported in one line, with the status that a shell has for it, and
// leaves nothing.
func TestExecRefused(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	self := contents(t, compiled(t, "int main(void) { return 0; }"))
	foreign := []byte(self)
	machine := elf.EM_AARCH64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_X86_64
	}
	const machineAt = 18 // of the ELF header
	binary.LittleEndian.PutUint16(foreign[machineAt:], uint16(machine))
	object := []byte(self)
	const typeAt = 16
	binary.LittleEndian.PutUint16(object[typeAt:], uint16(elf.ET_REL))
	for name, test := range map[string]struct {
		program string
		status  int
		words   []string
	}{
		"no such name":   {"no-such-program", 127, []string{`"no-such-program"`, "not found", "path"}},
		"no such path":   {"./no/such/program", 127, []string{"not found"}},
		"folder":         {folder, 126, []string{"folder"}},
		"not executable": {file("plain", self, 0o600), 126, []string{"chmod +x"}},
		"setuid":         {file("setuid", self, 0o4700|os.ModeSetuid), 126, []string{"setuid", "copy"}},
		"other machine":  {file("foreign", string(foreign), 0o700), 126, []string{"is for", "x86_64", "aarch64"}},
		"object file":    {file("object", string(object), 0o700), 126, []string{"no program"}},
		"static": {file("static", static(t), 0o700), 126, []string{"statically linked",
			"-DBUILD_SHARED_LIBS=ON"}},
		"llama inside": {withLlama(t), 126, []string{"llama.cpp is linked into it statically",
			"-DBUILD_SHARED_LIBS=ON"}},
		"text":    {file("text", "echo hello\n", 0o700), 126, []string{"neither", "#!"}},
		"empty":   {file("empty", "", 0o700), 126, []string{"neither"}},
		"cut off": {file("cut", self[:40], 0o700), 126, []string{"neither"}},
		"no interpreter": {file("lost", "#!/no/such/interpreter -x\n", 0o700), 126, []string{"/no/such/interpreter",
			"not there"}},
		"nameless": {file("nameless", "#!\n", 0o700), 126, []string{"no interpreter"}},
		"static in script": {file("wrapped", "#!"+file("static2", static(t), 0o700)+"\n", 0o700), 126,
			[]string{"statically linked"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			o := llamatapIn(t, out, "exec", "--tap-layers", "1", "--", test.program)
			if o.status != test.status || o.stdout != "" || !oneLine(o.stderr, test.words...) ||
				!strings.HasPrefix(o.stderr, "llamatap: program ") {
				t.Errorf("status %d, want %d\n%s", o.status, test.status, o.stderr)
			}
			if left := everythingBelow(t, out); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// TestExecPlainRefused: without a recorder the same programs end with the same statuses.
func TestExecPlainRefused(t *testing.T) {
	for program, want := range map[string]int{"no-such-program": 127, "/dev/null": 126, "/": 126} {
		if o := llamatap(t, "exec", "--", program); o.status != want || !oneLine(o.stderr) {
			t.Errorf("%s: status %d, want %d\n%s", program, o.status, want, o.stderr)
		}
	}
}

// TestExecOthers: a program of another project runs unchanged, and why nothing was recorded is printed; a
// status of 0 becomes 3.
func TestExecOthers(t *testing.T) {
	program, backends := testenv.Greedy(t, false)
	for name, test := range map[string]struct {
		args   []string
		status int
		words  string
	}{
		"true":       {[]string{"true"}, 3, "did not load llama.cpp"},
		"false":      {[]string{"false"}, 1, "did not load llama.cpp"},
		"no context": {[]string{program, "/no/such/model", backends, "1"}, 4, "no call of it came through the tap"},
		"preload refused": {[]string{"env", "-u", "LD_PRELOAD", program, testenv.Model(t), backends, "1"}, 3,
			"did not load llama.cpp as a shared library"},
	} {
		t.Run(name, func(t *testing.T) {
			o := execOf(t, residual, test.args...)
			if o.status != test.status || !oneLine(lastLine(o.stderr), "nothing was recorded", test.words) ||
				len(o.dirs) != 0 {
				t.Errorf("status %d, want %d; %d directories\n%s", o.status, test.status, len(o.dirs), o.stderr)
			}
		})
	}
}

// static is a statically linked program.
func static(t *testing.T) string {
	t.Helper()
	return contents(t, compiled(t, "int main(void) { return 0; }", "-static-pie", "-nostartfiles", "-Wl,-e,main"))
}

func contents(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// withLlama is a program that has a llama_decode of its own.
func withLlama(t *testing.T) string {
	t.Helper()
	return compiled(t, "int llama_decode(void) { return 0; } int main(void) { return llama_decode(); }")
}

// compiled is the program that a line of C makes.
func compiled(t *testing.T, text string, args ...string) string {
	t.Helper()
	folder := t.TempDir()
	source, program := filepath.Join(folder, "a.c"), filepath.Join(folder, "a")
	if err := os.WriteFile(source, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testenv.NeedCC(t), append([]string{"-o", program, source},
		args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
