package llamatap_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// fakePrograms stand before the machine's in PATH: an apt whose mirror is the folder $FAKE, which
// notes its calls in $FAKE/calls and has no network while $FAKE/offline exists.
var fakePrograms = map[string]string{
	"apt-config": `exit 0`,
	"getconf":    `cat "$FAKE/getconf"`,
	"apt-cache": `awk -v n="$2" '$1 == n { print "Package: " n "\nVersion: " $2 "\nSHA256: " $3 "\n" }' "$FAKE/index"
`,
	"apt-get": `
[ "$1" != -qq ] || shift
case "$1" in
indextargets) cat "$FAKE/targets"; exit ;;
update) if [ "${2:-}" = --print-uris ]; then cat "$FAKE/uris"; exit; fi ;;
esac
echo "$@" >>"$FAKE/calls"
if [ -e "$FAKE/offline" ]; then echo "E: no network" >&2; exit 100; fi
case "$1" in
update) sed 's/.*\] //' "$(dirname "$APT_CONFIG")/sources.list" >"$FAKE/mirror" ;;
download)
	shift
	for p; do cp "$FAKE/debs/${p%%=*}"_*.deb .; done
	;;
esac
`,
}

// fakeLoader is the dynamic loader of the fake libc6; asked with --list it prints $FAKE/list.
const fakeLoader = "#!/bin/sh\ncat \"$FAKE/list\"\n"

// A machine is a checkout of the fetcher on a machine whose apt is a fake.
type machine struct {
	t    *testing.T
	dir  string // the fake's state, $FAKE
	repo string // holds fetch and dist
	env  []string
}

// newMachine returns a Debian machine whose apt serves Debian and whose mirror has what is locked.
func newMachine(t *testing.T) *machine {
	t.Helper()
	testenv.NotShort(t)
	if _, err := exec.LookPath("dpkg-deb"); err != nil || runtime.GOARCH != "amd64" {
		testenv.Beyond(t, "a Debian amd64 machine", "its packages are built here for a trial")
	}
	dir := t.TempDir()
	m := &machine{t: t, dir: dir, repo: filepath.Join(dir, "repo")}
	m.env = append(os.Environ(),
		"FAKE="+dir, "PATH="+filepath.Join(dir, "programs")+":"+os.Getenv("PATH"),
		"XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "LLAMATAP_TEST_SYSROOT="+filepath.Join(dir, "root"),
		"LLAMATAP_DEBIAN_MIRROR=")
	for name, body := range fakePrograms {
		m.write("programs/"+name, "#!/bin/sh\n"+body, 0o755)
	}
	for _, name := range []string{"fetch", "machine.sh"} {
		text, err := os.ReadFile(filepath.Join("third_party/llama.cpp", name))
		if err != nil {
			t.Fatal(err)
		}
		m.write("repo/"+name, string(text), 0o755)
	}
	m.write("root/etc/os-release", "ID=debian\n", 0o644)
	m.write("root/usr/share/keyrings/debian-archive-keyring.gpg", "keys", 0o644)
	m.write("targets", "Debian main stable file:/mirror/debian/\nOther main stable file:/other/\n", 0o644)
	m.write("uris", "", 0o644)
	m.write("list", "", 0o644)
	m.write("calls", "", 0o644)
	m.write("getconf", "glibc 2.36\n", 0o644)
	m.publish("3.0")
	m.lock("3.0", "")
	return m
}

// fakePackages lists what each package holds; the text of true stands for a program's.
var fakePackages = map[string]map[string]string{
	"libc6":                   {"usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2": fakeLoader},
	"libllama0":               {"usr/lib/x86_64-linux-gnu/llama/libllama-cli-impl.so": "elf"},
	"libggml0":                {"usr/lib/x86_64-linux-gnu/ggml/backends0/libggml-cpu-x64.so": "elf"},
	"libggml0-backend-rpc":    {"usr/lib/x86_64-linux-gnu/ggml/backends0/libggml-rpc.so": "elf"},
	"libggml0-backend-vulkan": {"usr/lib/x86_64-linux-gnu/ggml/backends0/libggml-vulkan.so": "elf"},
	"libvulkan1":              {"usr/lib/x86_64-linux-gnu/libvulkan.so.1": "elf"},
	"libggml0-backend-blas":   {"usr/lib/x86_64-linux-gnu/ggml/backends0/libggml-blas.so": "elf"},
	"libopenblas0-pthread": {
		"usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3":     "elf",
		"usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0": "elf",
	},
	"libgfortran5":    {"usr/lib/x86_64-linux-gnu/libgfortran.so.5": "elf"},
	"llama.cpp-tools": {"usr/bin/llama-cli": "elf"},
}

// publish makes the mirror offer every package in one version only.
func (m *machine) publish(version string) {
	m.t.Helper()
	if err := os.RemoveAll(filepath.Join(m.dir, "debs")); err != nil {
		m.t.Fatal(err)
	}
	var index strings.Builder
	for name, files := range fakePackages {
		fmt.Fprintf(&index, "%s %s %s\n", name, version, m.pack(name, version, files))
	}
	m.write("index", index.String(), 0o644)
}

// pack builds one package into the mirror and returns its SHA-256.
func (m *machine) pack(name, version string, files map[string]string) string {
	m.t.Helper()
	tree := filepath.Join("tree", name+version)
	m.write(tree+"/DEBIAN/control", fmt.Sprintf(
		"Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: nobody <nobody@localhost>\nDescription: fake\n",
		name, version), 0o644)
	for file, text := range files {
		m.write(filepath.Join(tree, file), text, 0o755)
		if text == "elf" {
			m.copyTrue(filepath.Join(tree, file))
		}
	}
	deb := filepath.Join(m.dir, "debs", name+"_"+version+"_amd64.deb")
	if err := os.MkdirAll(filepath.Dir(deb), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if out, err := exec.Command("dpkg-deb", "-Znone", "--root-owner-group", "-b", filepath.Join(m.dir, tree), deb).
		CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(deb)
	if err != nil {
		m.t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// copyTrue puts a real program into place, which a real loader can list.
func (m *machine) copyTrue(name string) {
	data, err := os.ReadFile("/bin/true")
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(name, string(data), 0o755)
}

// lock writes llama.lock from the index, with version in place of the offered one, and with sha in
// place of libggml0's hash unless it is empty.
func (m *machine) lock(version, sha string) {
	text := "# a lock\nsuite testing\n"
	for line := range strings.Lines(m.read("index")) {
		f := strings.Fields(line)
		if f[0] == "libggml0" && sha != "" {
			f[2] = sha
		}
		text += fmt.Sprintf("amd64 %s %s %s\n", f[0], version, f[2])
	}
	m.write("repo/llama.lock", text, 0o644)
}

// fetch runs the fetcher and returns what it said; ok reports whether it succeeded.
func (m *machine) fetch(args ...string) (said string, ok bool) {
	m.t.Helper()
	cmd := exec.Command(filepath.Join(m.repo, "fetch"), args...)
	cmd.Env = m.env
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	return both.String(), err == nil
}

// must runs a fetch that has to succeed.
func (m *machine) must(args ...string) string {
	m.t.Helper()
	said, ok := m.fetch(args...)
	if !ok {
		m.t.Fatalf("fetch failed:\n%s", said)
	}
	return said
}

// refuses runs a fetch that has to fail, saying each of words, and to leave no dist.
func (m *machine) refuses(words ...string) {
	m.t.Helper()
	said, ok := m.fetch()
	if ok {
		m.t.Fatalf("fetch succeeded:\n%s", said)
	}
	for _, word := range words {
		if !strings.Contains(said, word) {
			m.t.Errorf("fetch did not say %q:\n%s", word, said)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(m.repo, "dist*")); left != nil {
		m.t.Errorf("fetch failed and left %q", left)
	}
}

func (m *machine) remove(name string) {
	m.t.Helper()
	if err := os.RemoveAll(filepath.Join(m.dir, name)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(name string) string {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(data)
}

func (m *machine) write(name, text string, mode os.FileMode) {
	m.t.Helper()
	name = filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}
