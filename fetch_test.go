// Package llamacpp_test tests the fetcher of llama.cpp on machines whose apt is a fake.
package llamatap_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestFetchFillsDist(t *testing.T) {
	m := newMachine(t)
	m.must()
	for _, name := range []string{
		"glibc/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "run/ld.so", "run/llama-cli",
		"run/libggml-cpu-x64.so", "backends-rpc/libggml-rpc.so", "versions",
		"backends-blas/libggml-blas.so", "backends-blas/libblas.so.3", "backends-blas/libopenblas.so.0",
		"backends-blas/libgfortran.so.5", "backends-vulkan/libggml-vulkan.so", "backends-vulkan/libvulkan.so.1",
	} {
		if _, err := os.Stat(filepath.Join(m.repo, "dist", name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"rpc", "blas"} {
		if found, _ := filepath.Glob(filepath.Join(m.repo, "dist/run/*"+name+"*")); found != nil {
			t.Errorf("the backend %s would be loaded by default: %q", name, found)
		}
	}
	if mirror := m.read("mirror"); mirror != "file:/mirror/debian/ testing main\n" {
		t.Errorf("apt was pointed at %q", mirror)
	}
}

func TestSecondFetchAsksNobody(t *testing.T) {
	m := newMachine(t)
	m.must()
	m.write("calls", "", 0o644)
	if said := m.must(); said != "" || m.read("calls") != "" {
		t.Errorf("said %q, called apt-get %q", said, m.read("calls"))
	}
}

func TestFetchFromCacheWithoutNetwork(t *testing.T) {
	m := newMachine(t)
	m.must()
	m.remove("repo/dist")
	m.write("offline", "", 0o644)
	m.write("calls", "", 0o644)
	m.must()
	if calls := m.read("calls"); calls != "" {
		t.Errorf("apt-get was called: %q", calls)
	}
}

func TestBrokenCachedPackageIsFetchedAgain(t *testing.T) {
	m := newMachine(t)
	m.must()
	m.remove("repo/dist")
	broken := "cache/llamatap/libggml0_3.0_amd64.deb"
	m.write(broken, "not a package", 0o644)
	if said := m.must(); !strings.Contains(said, "does not match its hash") {
		t.Errorf("said only %q", said)
	}
	if m.read(broken) == "not a package" {
		t.Error("the broken package is still in the cache")
	}
}

func TestNoNetworkNamesRemedies(t *testing.T) {
	m := newMachine(t)
	m.write("offline", "", 0o644)
	m.refuses("no network", "LLAMATAP_DEBIAN_MIRROR", "LLAMA_PREFIX=/path")
}

func TestWrongHashIsRefused(t *testing.T) {
	m := newMachine(t)
	m.lock("3.0", strings.Repeat("0", 64))
	m.refuses("llama.lock says 0000", "make update-llama")
	if strings.Contains(m.read("calls"), "download") {
		t.Error("something was downloaded")
	}
}

func TestGoneVersionIsReplacedByAWholeNewSet(t *testing.T) {
	m := newMachine(t)
	m.must()
	m.remove("repo/dist")
	m.publish("4.0")
	m.lock("3.1", "")
	if said := m.must(); !strings.Contains(said, "WARNING") || !strings.Contains(said, "no longer on the mirror") {
		t.Errorf("said only %q", said)
	}
	for line := range strings.Lines(m.read("repo/dist/versions")) {
		if strings.Fields(line)[1] != "4.0" {
			t.Errorf("dist holds %s", line)
		}
	}
	if said := m.must(); said != "" {
		t.Errorf("the second run said %q", said)
	}
}

func TestMissingLibraryIsRefused(t *testing.T) {
	for name, line := range map[string]string{
		"missing": "\tlibfoo.so.1 => not found\n",
		"foreign": "\tlibfoo.so.1 => /usr/lib/libfoo.so.1 (0x1)\n",
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.write("list", line, 0o644)
			m.refuses("libfoo.so.1", "llama.lock lacks a package")
		})
	}
}

func TestNewerHostUsesItsOwnLibc(t *testing.T) {
	m := newMachine(t)
	m.write("getconf", "glibc 5.0\n", 0o644)
	m.must()
	loader, err := os.ReadFile(filepath.Join(m.repo, "dist/run/ld.so"))
	if err != nil {
		t.Fatal(err)
	}
	if string(loader) == fakeLoader {
		t.Error("programs would start with the older loader of the packages")
	}
	if start := m.read("repo/dist/run/start"); strings.Contains(start, "glibc") {
		t.Errorf("the packages' C library is in the library path:\n%s", start)
	}
}

func TestMirrorWithoutIndexFiles(t *testing.T) {
	m := newMachine(t)
	m.write("targets", "", 0o644)
	m.write("uris",
		"'file:/fresh/debian/dists/stable/InRelease' x 0 \n'file:/sec/debian-security/dists/stable-security/InRelease' y 0 \n", 0o644)
	m.must()
	if mirror := m.read("mirror"); !strings.HasPrefix(mirror, "file:/fresh/debian/ ") {
		t.Errorf("apt was pointed at %q", mirror)
	}
}

func TestOtherDistribution(t *testing.T) {
	m := newMachine(t)
	m.write("root/etc/os-release", "ID=ubuntu\n", 0o644)
	m.write("targets", "Ubuntu main noble file:/ubuntu/\n", 0o644)
	m.write("uris", "'file:/ubuntu/dists/noble/InRelease' x 0 \n", 0o644)
	m.remove("root/usr/share/keyrings")
	m.refuses("set LLAMATAP_DEBIAN_MIRROR")

	m.pack("debian-archive-keyring", "1", map[string]string{"usr/share/keyrings/debian-archive-keyring.gpg": "keys"})
	m.env = append(m.env, "LLAMATAP_DEBIAN_MIRROR=file:/far/debian")
	if said := m.must(); !strings.Contains(said, "taking debian-archive-keyring from this machine's own archive") {
		t.Errorf("said only %q", said)
	}
	if mirror := m.read("mirror"); !strings.HasPrefix(mirror, "file:/far/debian ") {
		t.Errorf("apt was pointed at %q", mirror)
	}
}

func TestTwoFetchesAtOnce(t *testing.T) {
	m := newMachine(t)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if said, ok := m.fetch(); !ok {
				t.Error(said)
			}
		})
	}
	both.Wait()
	if n := strings.Count(m.read("calls"), "download"); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
}

func TestUpdateLocksTheNewest(t *testing.T) {
	m := newMachine(t)
	lock := m.read("repo/llama.lock")
	m.write("repo/llama.lock", lock+strings.ReplaceAll(strings.SplitAfterN(lock, "\n", 3)[2], "amd64", "arm64"), 0o644)
	m.publish("4.0")
	m.must("--update")
	got := m.read("repo/llama.lock")
	if !strings.HasPrefix(got, "# a lock\nsuite testing\namd64 ") || strings.Contains(got, " 3.0 ") ||
		strings.Count(got, " 4.0 ") != 2*len(fakePackages) {
		t.Errorf("lock is\n%s", got)
	}
	m.must()
}
