package doctor

import (
	"github.com/llamatap/llamatap/internal/present"
	"golang.org/x/sys/unix"
)

// space is how much room the folder's file system has. By default a run leaves 1 GiB or 2 % of it free,
// whichever is less.
func space(dir string) Fact {
	f := Fact{Topic: "output", Name: "free space"}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return f.unknown(err)
	}
	free, total := st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
	text := present.Bytes(free) + " of " + present.Bytes(total)
	if free <= min(1<<30, total/50) {
		return f.with(Limited, text).lacking("a recording stops at once: a run leaves 1 GiB or 2 % free",
			"make room, or --tap-out elsewhere, or --tap-min-free")
	}
	return f.with(OK, text)
}
