package kernels

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// order is what the guest is to do; its Order is the same.
type order struct {
	Modules []string // names of files in /modules, each behind those that it needs
	Dir     string
	Args    []string
	Env     []string
}

// done begins the line in which the guest reports the command's status.
const done = "llamatap-guest: status"

// A machine starts commands in virtual machines. A virtual machine has two processors, 2 GiB of memory, control
// groups of version 2 with the controllers memory, io, cpu and pids, and at /mnt, which is TMPDIR too, a disk of 2
// GiB with ext4; all other files are this machine's.
type machine struct {
	emulator, guest string
}

// newMachine makes what virtual machines start with. It ends the test where the emulator is missing.
func newMachine(t testing.TB) *machine {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		testenv.Beyond(t, "kernels of amd64", "another processor")
	}
	m := &machine{emulator: testenv.NeedEmulator(t), guest: filepath.Join(t.TempDir(), "guest")}
	cmd := exec.Command("go", "build", "-o", m.guest, "./oracle/kernels/guest")
	cmd.Dir = testenv.Root(t)
	// its own libraries and loader are not in the guest's first files
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return m
}

// Run boots a kernel, runs a command in a folder and returns what it wrote, and its status. It ends the test where
// the machine does not come to that, or has not ended after limit.
func (m *machine) Run(t testing.TB, k kernel, limit time.Duration, dir string, args ...string) (output string,
	status int) {
	t.Helper()
	work := t.TempDir()
	first, disk := filepath.Join(work, "initramfs"), filepath.Join(work, "disk")
	if err := m.initramfs(k, first, order{Dir: dir, Args: args, Env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/mnt", "TMPDIR=/mnt", "LLAMATAP_CI=" + os.Getenv("LLAMATAP_CI"),
		"LLAMATAP_NIGHTLY=" + os.Getenv("LLAMATAP_NIGHTLY"),
		testenv.EmulatedVariable + "=1",
	}}); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", disk, "2G").CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	text, err := m.boot(k, first, disk, limit)
	if bytes.Contains(text, []byte(brokenPatch)) {
		t.Logf("started again after: %s", brokenPatch)
		text, err = m.boot(k, first, disk, limit)
	}
	output, end, ok := strings.Cut(strings.ReplaceAll(string(text), "\r\n", "\n"), done)
	if !ok {
		t.Fatalf("kernel %s reported no end: %v\n%s", k.Name, err, output)
	}
	if _, err := fmt.Sscan(end, &status); err != nil {
		t.Fatalf("kernel %s: %q: %v", k.Name, end, err)
	}
	return output, status
}

// brokenPatch is what a kernel says where the emulator, on a busy machine, runs an instruction while the other
// processor replaces it: the kernel puts int3 there meanwhile, and finds no reason for it any more.
const brokenPatch = "Oops: int3"

// boot starts a kernel and returns what it wrote until the machine was switched off.
func (m *machine) boot(k kernel, first, disk string, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return exec.CommandContext(ctx, m.emulator, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048",
		"-nodefaults", "-no-user-config",
		"-display", "none", "-no-reboot", "-kernel", k.image, "-initrd", first, "-append",
		// On a busy machine the emulated timer is late at the kernel's own check of it, which ends in a panic.
		"console=ttyS0 panic=-1 quiet psi=1 no_timer_check", "-serial", "stdio",
		"-drive", "file="+disk+",format=raw,if=none,id=disk,cache=unsafe", "-device", "virtio-blk-pci,drive=disk",
		"-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap").CombinedOutput()
}

// initramfs writes the guest's first files.
func (m *machine) initramfs(k kernel, path string, o order) error {
	var a archive
	for _, dir := range []string{"dev", "modules"} {
		a.add(dir, folder, nil, 0, 0)
	}
	a.add("dev/console", character, nil, 5, 1)
	files, err := k.order()
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := filepath.Base(file)
		a.add("modules/"+name, program, text, 0, 0)
		o.Modules = append(o.Modules, name)
	}
	text, err := os.ReadFile(m.guest)
	if err != nil {
		return err
	}
	a.add("init", program, text, 0, 0)
	if text, err = json.Marshal(o); err != nil {
		return err
	}
	a.add("order.json", program, text, 0, 0)
	return os.WriteFile(path, a.bytes(), 0o600)
}
