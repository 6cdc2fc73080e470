//go:build linux

package session

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A sink is a descriptor that somebody opened for llamatap, and none of its own, such as the tap's shared memory.
func TestFeedOfInheritedDescriptor(t *testing.T) {
	for flags, want := range map[int]string{0: "", unix.MFD_CLOEXEC: "open it for this command"} {
		number, err := unix.MemfdCreate("sink", flags)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(number)
		f, err := newFeed(fmt.Sprintf("fd:%d", number))
		if err == nil {
			f.to.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("flags %d: %v, want %q", flags, err, want)
		}
	}
}
