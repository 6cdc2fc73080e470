package llama

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// homeVariable is how the launcher of a relocatable llamatap says where it lies. Such a program is started by the
// loader that it brings, so that the running file is the loader's and says nothing.
const homeVariable = "LLAMATAP_HOME"

// takeHome is that folder for a build that moves, which is one that has a root. Programs that it starts do not get it.
func takeHome(root string) string {
	if root == "" {
		return ""
	}
	dir := os.Getenv(homeVariable)
	os.Unsetenv(homeVariable)
	if !filepath.IsAbs(dir) {
		return ""
	}
	return dir
}

// Self is the path that starts this program again: its own file, or its launcher.
func Self() (string, error) {
	if home == "" {
		return executable()
	}
	path := filepath.Join(home, "llamatap")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find llamatap's launcher: %w; unpack the archive again, whole", err)
	}
	return path, nil
}

// executable is this program's own file, which Linux has in /proc.
func executable() (string, error) {
	self, err := os.Executable()
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: mount /proc (mount -t proc proc /proc)", err)
	}
	return self, err
}

// TapLibrary is the file name of the tap as a preloadable object. It lies next to the llamatap binary.
const TapLibrary = "libllamatap.so"

// Beside is the path of a file that lies beside this program's own.
func Beside(name string) (string, error) {
	if home != "" {
		return filepath.Join(home, "bin", name), nil
	}
	self, err := executable()
	return filepath.Join(filepath.Dir(self), name), err
}

// relocated is where a path below root lies now; a list of paths is separated by colons.
func relocated(home, root, paths string) string {
	if home == "" || root == "" || paths == "" {
		return paths
	}
	list := strings.Split(paths, ":")
	for i, path := range list {
		if rest, below := strings.CutPrefix(path, root); below && (rest == "" || rest[0] == '/') {
			list[i] = home + rest
		}
	}
	return strings.Join(list, ":")
}
