package blockio

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// groups names control groups by the number of their folder.
type groups struct {
	mount string // of the hierarchy; "" where there is none
	v1    bool
	byID  map[uint64]string
	asked map[uint64]string // those of byID that were asked for since it was walked
	fresh bool              // walked since the last snapshot
}

// newGroups finds the hierarchy that block requests are accounted in: blkio of version 1 unless unified is set,
// else version 2.
func newGroups(mounts string, unified bool) *groups {
	g := &groups{asked: map[uint64]string{}}
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		switch {
		case len(f) < 4:
		case f[2] == "cgroup" && !unified && slices.Contains(strings.Split(f[3], ","), "blkio"):
			g.mount, g.v1 = f[1], true
			return g
		case f[2] == "cgroup2" && g.mount == "":
			g.mount = f[1]
		}
	}
	return g
}

// path returns a group's path within its hierarchy, "?" where it is gone.
func (g *groups) path(id uint64) string {
	if _, ok := g.byID[id]; !ok && !g.fresh && g.mount != "" {
		g.fresh = true
		g.walk()
	}
	p, ok := g.byID[id]
	if !ok {
		return "?"
	}
	g.asked[id] = p
	return p
}

// walk finds the groups that there are. Of those that are gone the names that were asked for since the walk before are
// kept, for requests that are still to be reported; so names do not accumulate while groups come and go.
func (g *groups) walk() {
	g.byID, g.asked = g.asked, map[uint64]string{}
	_ = filepath.WalkDir(g.mount, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil // a group that goes meanwhile
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			g.byID[st.Ino] = "/" + strings.TrimPrefix(strings.TrimPrefix(path, g.mount), "/")
		}
		return nil
	})
}
