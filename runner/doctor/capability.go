package doctor

import (
	"io/fs"
	"strconv"
	"strings"
)

// privileges are the capabilities that sensors ask for, with their bits of linux/capability.h.
var privileges = []struct {
	name string
	bit  uint
}{{"CAP_SYS_ADMIN", 21}, {"CAP_PERFMON", 38}, {"CAP_BPF", 39}}

// capabilities reads the privileges of this process.
func capabilities(root fs.FS) []Fact {
	set, err := effective(root)
	var facts []Fact
	for _, p := range privileges {
		f := Fact{Topic: "rights", Name: p.name, Status: Missing, Value: "not effective"}
		if err != nil {
			f.Status, f.Value = Unknown, err.Error()
		} else if set&(1<<p.bit) != 0 {
			f.Status, f.Value = OK, "effective"
		}
		facts = append(facts, f.lacking("the kernel may refuse what needs it", "run as root, or with this capability"))
	}
	return facts
}

// effective reads the set of effective capabilities.
func effective(root fs.FS) (uint64, error) {
	text, err := word(root, "proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(set), 16, 64)
		}
	}
	return 0, fs.ErrNotExist
}
