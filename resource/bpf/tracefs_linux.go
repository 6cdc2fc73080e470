package bpf

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// tracefs is where the kernel keeps the folder of its tracepoints.
const tracefs = "/sys/kernel/tracing"

// MountTracefs mounts tracefs as trace-cmd does, where collectors need it (a kernel without BTF), it is not mounted
// and this user may. It reports where it mounted tracefs; "" if it changed nothing. Load and Fields never mount it:
// their errors name the remedy.
func MountTracefs() string {
	if !(Options{}).TakesPlain() {
		return ""
	}
	for _, dir := range []string{tracefs, "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(dir + "/events"); err == nil {
			return ""
		}
	}
	if unix.Mount("nodev", tracefs, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME,
		"") != nil {
		return ""
	}
	return tracefs
}

// Fields returns the offsets of a tracepoint's fields in the context of its plain programs; they differ between
// kernels.
func Fields(group, name string) (map[string]uint32, error) {
	var failed error
	for _, dir := range []string{tracefs, "/sys/kernel/debug/tracing"} {
		f, err := os.Open(dir + "/events/" + group + "/" + name + "/format")
		if err != nil {
			failed = err
			continue
		}
		defer f.Close()
		return parseFields(f)
	}
	return nil, explain("read the fields of tracepoint "+group+":"+name,
		fmt.Errorf("neither debugfs nor tracefs: %w", failed))
}

// parseFields reads a tracepoint's format: lines such as "field:char rwbs[10]; offset:34; size:10; signed:0;".
func parseFields(r io.Reader) (map[string]uint32, error) {
	fields := map[string]uint32{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		declared, rest, ok := strings.Cut(strings.TrimSpace(lines.Text()), ";")
		words := strings.Fields(declared)
		if !ok || !strings.HasPrefix(declared, "field:") || len(words) < 2 {
			continue
		}
		var offset uint32
		if _, err := fmt.Sscanf(strings.TrimSpace(rest), "offset:%d;", &offset); err != nil {
			return nil, fmt.Errorf("read the fields of a tracepoint: %q: %w", lines.Text(), err)
		}
		name, _, _ := strings.Cut(words[len(words)-1], "[")
		fields[name] = offset
	}
	return fields, lines.Err()
}
