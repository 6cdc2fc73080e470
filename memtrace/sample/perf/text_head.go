package perf

import (
	"bytes"

	"github.com/llamatap/llamatap/memtrace"
)

// head is what a line says before its fields.
type head struct {
	ns       int64
	pid, tid int32
	cpu      int32 // -1: not printed
	period   uint64
	event    []byte
}

// parseHead reads a line up to its event, and returns what follows. A name of a program may hold spaces, so what
// precedes the time is read backwards.
func parseHead(line []byte) (h head, rest []byte, ok bool) {
	h.cpu = -1
	at, end := findTime(line)
	if end > 0 {
		h.ns = seconds(line[at : end-1])
		rest = bytes.TrimLeft(line[end:], " ")
	} else {
		at = findEvent(line)
		if at < 0 {
			return h, nil, false
		}
		rest = line[at:]
	}
	h.before(line[:at])
	first, after, _ := bytes.Cut(rest, []byte{' '})
	if n, isNumber := decimal(first); isNumber && end > 0 {
		h.period = n
		rest = bytes.TrimLeft(after, " ")
	}
	if bytes.HasPrefix(rest, []byte("PERF_RECORD_")) {
		h.event, rest, _ = bytes.Cut(rest, []byte{' '})
		h.event = bytes.TrimSuffix(h.event, []byte{':'})
		return h, rest, true
	}
	n := bytes.Index(rest, []byte(": "))
	if n < 0 && bytes.HasSuffix(rest, []byte{':'}) {
		n = len(rest) - 1 // perf trims nothing, editors do
	}
	if n <= 0 {
		return h, nil, false
	}
	h.event = bytes.TrimSpace(rest[:n])
	return h, rest[n+1:], len(h.event) > 0
}

// findTime finds the first word of the form 123.456789: and where it ends.
func findTime(line []byte) (at, end int) {
	for i := 0; i < len(line); i++ {
		if line[i] == ' ' || i > 0 && line[i-1] != ' ' {
			continue
		}
		j, dot := i, -1
		for ; j < len(line) && (isDigit(line[j]) || line[j] == '.' && dot < 0); j++ {
			if line[j] == '.' {
				dot = j
			}
		}
		if dot > i && j-dot >= 7 && j-dot <= 10 && j < len(line) && line[j] == ':' {
			return i, j + 1
		}
	}
	return 0, 0
}

// findEvent finds the first word that ends with a colon, and before it a period.
func findEvent(line []byte) int {
	colon := bytes.Index(line, []byte(": "))
	if colon < 0 {
		return -1
	}
	return bytes.LastIndexByte(line[:colon], ' ') + 1
}

// seconds reads 123.456789 as nanoseconds.
func seconds(b []byte) int64 {
	whole, fraction, _ := bytes.Cut(b, []byte{'.'})
	s, _ := decimal(whole)
	f, _ := decimal(fraction)
	for range 9 - len(fraction) {
		f *= 10
	}
	return int64(s*1e9 + f)
}

// before reads, from the end, [cpu], pid/tid or tid; a word of letters between them is misc.
func (h *head) before(b []byte) {
	for range 4 {
		b = bytes.TrimRight(b, " ")
		word := b[bytes.LastIndexByte(b, ' ')+1:]
		if len(word) == 0 {
			return
		}
		if word[0] == '[' && word[len(word)-1] == ']' {
			if n, ok := decimal(word[1 : len(word)-1]); ok {
				h.cpu = int32(n)
			}
		} else if pid, tid, both := bytes.Cut(word, []byte{'/'}); isDigit(word[0]) || word[0] == '-' && len(word) > 1 {
			p, ok := decimal(pid)
			if !ok {
				return
			}
			h.pid, h.tid = int32(p), int32(p)
			if n, ok := decimal(tid); both && ok {
				h.tid = int32(n)
			} else if !both {
				h.pid = 0 // what is printed alone is the thread's, unless -F said pid
			}
			return
		}
		b = b[:len(b)-len(word)]
	}
}

// fault reads what the tracepoint of page faults says, and whether it was a write.
func fault(rest []byte, a memtrace.Access) memtrace.Access {
	const write = 1 << 1
	for word := range bytes.FieldsSeq(rest) {
		key, value, _ := bytes.Cut(word, []byte{'='})
		v, ok := hex(bytes.TrimPrefix(value, []byte("0x")))
		switch {
		case !ok:
		case string(key) == "address":
			a.Addr = v
		case string(key) == "ip":
			a.IP = v
		case string(key) == "error_code" && v&write != 0:
			a.Op = memtrace.OpWrite
		case string(key) == "error_code":
			a.Op = memtrace.OpRead
		}
	}
	return a
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// decimal reads a whole word as a number.
func decimal(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	for _, c := range b {
		if !isDigit(c) {
			return 0, false
		}
		n = 10*n + uint64(c-'0')
	}
	return n, true
}

// hex reads a whole word as a hexadecimal number.
func hex(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 16 {
		return 0, false
	}
	for _, c := range b {
		switch {
		case isDigit(c):
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}
