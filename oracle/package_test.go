//go:build linux

package oracle

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// packaged runs scripts/package.
func packaged(t *testing.T, env []string, args ...string) string {
	t.Helper()
	testenv.NeedBinary(t) // the libraries lie next to it
	cmd := exec.Command(filepath.Join(testenv.Root(t), "scripts", "package"), args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("package %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// emptyRoot makes a root folder with a shell, readlink and what these need, and nothing else.
func emptyRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"bin", "proc", "dev", "tmp", "opt"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyTo := func(from, to string) {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(root, to)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(root, to), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "readlink"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		copyTo(path, "bin/"+name)
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(string(out)) {
			if strings.HasPrefix(word, "/") {
				copyTo(word, word)
			}
		}
	}
	return root
}

// TestArchive: the archive of make dist runs in a root without Go, compiler or llama.cpp, also through links.
func TestArchive(t *testing.T) {
	testenv.Slow(t)
	testenv.NeedPrograms(t, "llama-completion", "llama-cli", "llama-server")
	testenv.NeedRoot(t)
	testenv.NeedLlama(t)
	testenv.NotWithRace(t)
	root := emptyRoot(t)
	archive := filepath.Join(t.TempDir(), "llamatap-test.tar.gz")
	packaged(t, []string{"LLAMATAP_GZIP=1"}, "dist", archive)
	if out, err := exec.Command("tar", "-C", filepath.Join(root, "opt"), "-xzf", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	home := filepath.Join(root, "opt", "llamatap-test")
	for _, name := range []string{"LICENSE", "licences/libllama0", "licences/libc6", "licences/libstdc++6",
		"llamatap-0.1.0-py3-none-any.whl",
		"examples/systemd/llama-server.service", "examples/mrm/quick.yaml", "python/quickstart.ipynb",
		"share/man/man1/llamatap-run.1", "share/fish/vendor_completions.d/llamatap.fish"} {
		if info, err := os.Stat(filepath.Join(home, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is not in the archive: %v", name, err)
		}
	}
	if err := os.Rename(home, filepath.Join(root, "opt", "moved")); err != nil {
		t.Fatal(err)
	}
	script := `
mount=/opt/moved/llamatap
set -e
cd /tmp
$mount run -p 'func main() {' -n 8 --temp 0 >untapped
$mount run -p 'func main() {' -n 8 --temp 0 --tap-tensors 'l_out*' --tap-out one >tapped
$mount verify one/*/*
$mount install-links links
links/llama-completion -m /model.gguf -no-cnv -p 'func main() {' -n 8 --temp 0 --tap-tensors 'l_out*' --tap-out two
$mount verify two/*/*
links/llama-cli --version
echo '{"timestamp":0,"input_length":2,"output_length":2,"hash_ids":[5]}' >trace
$mount bench --trace trace -- llama-server -m /model.gguf
$mount doctor --quick
$mount help
lines() { while IFS= read -r line || [ -n "$line" ]; do echo "$line"; done; }
[ "$(lines <untapped)" = "$(lines <tapped)" ]
`
	for name, text := range map[string][]byte{"script": []byte(script), "model.gguf": read(t, testenv.Model(t))} {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("unshare", "-m", "sh",
		"-c", `mount -t proc proc "$1/proc" && mount --bind /dev "$1/dev" &&
			chroot=$(command -v chroot) && exec env -i HOME=/tmp PATH=/bin \
			${OMP_WAIT_POLICY:+OMP_WAIT_POLICY=$OMP_WAIT_POLICY} "$chroot" "$1" /bin/sh /script`, "sh", root)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestArchiveIsReproducible: two archives of one commit are the same bytes.
func TestArchiveIsReproducible(t *testing.T) {
	testenv.NeedLlama(t)
	testenv.Slow(t)
	var sums [2][32]byte
	for i := range sums {
		archive := filepath.Join(t.TempDir(), "llamatap-test.tar.gz")
		packaged(t, []string{"TMPDIR=" + t.TempDir()}, "dist", archive)
		sums[i] = sha256.Sum256(read(t, archive))
	}
	if sums[0] != sums[1] {
		t.Errorf("%x, then %x", sums[0], sums[1])
	}
}

// TestInstall: what make install leaves works from its place, and make uninstall takes it away.
func TestInstall(t *testing.T) {
	testenv.NeedLlama(t)
	testenv.Slow(t)
	stage := t.TempDir()
	env := []string{"PREFIX=/usr/local", "DESTDIR=" + stage}
	packaged(t, env, "install")
	bin := filepath.Join(stage, "usr/local/bin/llamatap")
	out := t.TempDir()
	cmd := exec.Command(bin, "run", "-p", "a", "-n", "4", "--temp", "0", "--tap-tensors", "l_out*", "--tap-out", out)
	if text, err := cmd.CombinedOutput(); err != nil || len(runDirs(t, out)) != 1 {
		t.Errorf("%v\n%s", err, text)
	}
	packaged(t, env, "uninstall")
	err := filepath.WalkDir(stage, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = fmt.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
