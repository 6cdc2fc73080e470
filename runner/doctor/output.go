package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/shirou/gopsutil/v4/disk"
)

// output looks at the folder in which run directories would be made.
func output(o Options) []Fact {
	f := Fact{Topic: "output", Name: "folder"}
	dir, err := standing(o.Out)
	if err == nil {
		err = writable(dir)
	}
	const costs, remedy = "no recording", "--tap-out with a folder that can be written to"
	if err != nil {
		return []Fact{f.with(Missing, oneLine(err.Error())).lacking(costs, remedy)}
	}
	text := dir
	if out, err := filepath.Abs(o.Out); err == nil && out != dir {
		text = out + ", to be made in " + dir
	}
	return []Fact{f.with(OK, text), fileSystem(o.Root, dir), space(dir)}
}

// standing is the folder itself, or the nearest one above it that is there, in which it would be made.
func standing(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return "", fmt.Errorf("%s is not a folder", dir)
		case err == nil, dir == filepath.Dir(dir):
			return dir, err
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

// FreeDisk is how many bytes are left on the file system that a folder lies on, or will when it is made.
func FreeDisk(dir string) (uint64, error) {
	dir, err := standing(dir)
	if err != nil {
		return 0, err
	}
	usage, err := disk.Usage(dir)
	if err != nil {
		return 0, err
	}
	return usage.Free, nil
}

// writable makes a file in dir and removes it.
func writable(dir string) error {
	file, err := os.CreateTemp(dir, ".llamatap-doctor-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// fileSystem says what the folder lies on.
func fileSystem(root fs.FS, dir string) Fact {
	f := Fact{Topic: "output", Name: "file system"}
	text, err := word(root, "proc/self/mountinfo")
	if err != nil {
		return f.unknown(err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return f.unknown(err)
	}
	kind, source := mounted(text, real)
	switch kind {
	case "":
		return f.with(Unknown, "no line of /proc/self/mountinfo is for "+real)
	case "tmpfs", "ramfs":
		return f.with(Limited, kind+", which is memory").
			lacking("a recording takes memory and is gone with the machine", "--tap-out with a folder on a disk")
	}
	return f.with(OK, kind+" on "+source)
}

// mounted finds the type and source of the file system that a path lies on: of the mounts above it the nearest, and
// there the last.
func mounted(mountinfo, dir string) (kind, source string) {
	longest := -1
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 2 {
			continue
		}
		point := unescape.Replace(left[4])
		within := point == "/" || dir == point || strings.HasPrefix(dir, point+"/")
		if within && len(point) >= longest {
			longest, kind, source = len(point), right[0], unescape.Replace(right[1])
		}
	}
	return kind, source
}
