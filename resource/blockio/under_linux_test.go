package blockio

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnder(t *testing.T) {
	dev := loop(t, 64, "")
	run(t, "mkfs.ext4", "-q", dev)
	dir := t.TempDir()
	run(t, "mount", dev, dir)
	t.Cleanup(func() { run(t, "umount", dir) })
	file := filepath.Join(dir, "model.gguf")
	if err := os.WriteFile(file, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Under(file); err != nil || got != filepath.Base(dev) {
		t.Errorf("%q, %v; want %s", got, err, dev)
	}
	if got, err := Under("/proc/version"); err == nil || !strings.Contains(err.Error(), "findmnt -T /proc/version") {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Under(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there")
	}
}

func TestMountedFrom(t *testing.T) {
	const mounts = `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
37 35 0:45 / /data rw,relatime shared:2 master:3 - btrfs /dev/nvme0n1p2 rw,space_cache=v2
38 35 0:46 / /tmp rw - tmpfs tmpfs rw
`
	for number, want := range map[string]string{"0:45": "nvme0n1p2", "98:0": "root", "0:46": "", "1:1": ""} {
		if got := mountedFrom(mounts, number); got != want {
			t.Errorf("%s is from %q, want %q", number, got, want)
		}
	}
}
