package rundir

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenFile: whatever lies under the name of a file of a run, opening it never waits, follows nothing, and reads
// no more than it may.
func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(at("file"), []byte("text"), 0o600))
	check(os.WriteFile(at("empty"), nil, 0o600))
	check(os.WriteFile(at("sparse"), nil, 0o600))
	check(os.Truncate(at("sparse"), MaxDocument+1))
	check(os.Symlink("file", at("link")))
	check(os.Symlink("nothing", at("dangling")))
	check(os.Symlink("/dev/zero", at("zero")))
	check(os.Mkdir(at("folder"), 0o700))
	check(unix.Mkfifo(at("fifo"), 0o600))
	listener, err := net.Listen("unix", at("socket"))
	check(err)
	defer listener.Close()
	for name, want := range map[string]error{
		"file": nil, "empty": nil, "sparse": ErrTooLarge, "link": ErrNotRegular, "dangling": ErrNotRegular,
		"zero":   ErrNotRegular,
		"folder": ErrNotRegular, "fifo": ErrNotRegular, "socket": ErrNotRegular, "nothing": fs.ErrNotExist,
	} {
		data, err := ReadFile(at(name), MaxDocument)
		if !errors.Is(err, want) || err == nil && string(data) != map[string]string{"file": "text"}[name] {
			t.Errorf("%s: %q, %v; want %v", name, data, err, want)
		}
	}
	if data, err := ReadFile(at("file"), 4); err != nil || string(data) != "text" {
		t.Errorf("of exactly the limit: %q, %v", data, err)
	}
}
