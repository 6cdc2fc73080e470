package blockio

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestGroupsAreForgotten: the name of a group that is gone is known as long as it is asked for; names of groups
// that come and go do not gather.
func TestGroupsAreForgotten(t *testing.T) {
	mount := t.TempDir()
	make := func(name string) uint64 {
		dir := filepath.Join(mount, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	g := newGroups("cgroup2 "+mount+" cgroup2 rw 0 0\n", true)
	steady := make("steady")
	var before string
	for i := range 50 {
		g.fresh = false
		name := fmt.Sprint("passing", i)
		id := make(name)
		if got := g.path(id); got != "/"+name {
			t.Fatalf("group %s is called %s", name, got)
		}
		if before != "" {
			os.Rename(filepath.Join(mount, before), filepath.Join(t.TempDir(), before)) // its number is not used again
		}
		if got := g.path(steady); got != "/steady" {
			t.Fatalf("the steady group is called %s", got)
		}
		before = name
	}
	if n := len(g.byID) + len(g.asked); n > 12 {
		t.Errorf("%d names are known of 3 groups", n)
	}
	dropped := make("gone")
	g.fresh = false
	g.path(dropped)
	if err := os.Remove(filepath.Join(mount, "gone")); err != nil {
		t.Fatal(err)
	}
	g.fresh = false
	if got := g.path(dropped); got != "/gone" {
		t.Errorf("a group that has just gone is called %s", got)
	}
}
