package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Status is a field of /proc/PID/status; "" where it is not there.
func Status(pid int, name string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// StatusBytes is a field that is an amount of memory, such as VmHWM, in bytes; 0 where it is not there.
func StatusBytes(pid int, name string) int64 {
	kB, _ := strconv.ParseInt(strings.TrimSuffix(Status(pid, name), " kB"), 10, 64)
	return kB << 10
}
