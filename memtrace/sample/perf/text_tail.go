package perf

import (
	"bytes"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/memtrace"
)

// cursor walks over the fields of a line.
type cursor struct{ b []byte }

// word is the next word, without taking it.
func (c *cursor) word() []byte {
	c.b = bytes.TrimLeft(c.b, " \t")
	if i := bytes.IndexByte(c.b, ' '); i >= 0 {
		return c.b[:i]
	}
	return c.b
}

func (c *cursor) hex() (uint64, bool) {
	w := c.word()
	n, ok := hex(w)
	if ok {
		c.b = c.b[len(w):]
	}
	return n, ok
}

func (c *cursor) decimal() (uint64, bool) {
	w := c.word()
	n, ok := decimal(w)
	if ok {
		c.b = c.b[len(w):]
	}
	return n, ok
}

// unavailable are the words with which the text of a data source may end, after the last field's name.
var unavailable = [][]byte{[]byte("BLK"), []byte("LCK"), []byte("N/A"), []byte("No"), []byte("Yes"), []byte("Data"),
	[]byte("Addr"), []byte("or")}

// source passes over the text of a data source, which begins with a bar and whose words may have spaces between them.
// It reports whether there is one.
func (c *cursor) source() bool {
	if w := c.word(); len(w) == 0 || w[0] != '|' {
		return false
	}
	c.b = c.b[bytes.LastIndexByte(c.b, '|')+1:]
	for {
		w := c.word()
		if len(w) == 0 || !slices.ContainsFunc(unavailable, func(u []byte) bool { return bytes.Equal(u, w) }) {
			return true
		}
		c.b = c.b[len(w):]
	}
}

// symbol takes a function's name up to the file that it stands in, or the end; and says how far it went. [unknown]
// is none.
func (c *cursor) symbol() (name string, found bool) {
	c.b = bytes.TrimLeft(c.b, " ")
	end := c.file()
	if end < 0 {
		end = len(c.b)
	}
	raw := bytes.TrimRight(c.b[:end], " ")
	c.b = c.b[end:]
	if i := bytes.LastIndex(raw, []byte("+0x")); i > 0 {
		raw = raw[:i]
	}
	if len(raw) == 0 || raw[0] == '[' && raw[len(raw)-1] == ']' {
		return "", len(raw) > 0
	}
	return string(raw), true
}

// file is where the last (FILE) begins of which only numbers and sizes of pages follow; -1: there is none.
func (c *cursor) file() int {
	end := len(bytes.TrimRight(c.b, " "))
	for end > 0 && c.b[end-1] != ')' {
		from := bytes.LastIndexByte(c.b[:end], ' ') + 1
		word := c.b[from:end]
		if _, ok := hex(word); !ok && !pageSize(word) {
			return -1
		}
		end = len(bytes.TrimRight(c.b[:from], " "))
	}
	depth := 0
	for i := end - 1; i >= 0; i-- {
		switch c.b[i] {
		case ')':
			depth++
		case '(':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// pageSize reports whether a word is a page size as perf prints it: 4K, 2M, 1G, N/A.
func pageSize(w []byte) bool {
	if string(w) == "N/A" {
		return true
	}
	if len(w) < 2 || bytes.IndexByte([]byte("KMGT"), w[len(w)-1]) < 0 {
		return false
	}
	_, ok := decimal(w[:len(w)-1])
	return ok
}

// addressSymbol passes over the symbol and file that perf prints of an address, up to the number that follows.
func (c *cursor) addressSymbol(l *layout) {
	if !l.has[fieldSym] && !l.has[fieldDSO] {
		return
	}
	for c.word(); len(c.b) > 0; { // its first word is not a number
		next := bytes.IndexByte(c.b, ' ')
		if next < 0 {
			c.b = nil
			return
		}
		c.b = c.b[next:]
		w := c.word()
		if _, ok := hex(w); ok && (slices.Contains(l.has[fieldDataSrc:fieldIP+1], true) || l.has[fieldPhys]) {
			return
		}
	}
}

// parse reads the fields of a line. All must be there, and nothing else.
func (l *layout) parse(rest []byte, e event, a *memtrace.Access) bool {
	c := cursor{rest}
	ok := true
	take := func(f field, read func() (uint64, bool)) uint64 {
		if !l.has[f] || !ok {
			return 0
		}
		n, found := read()
		ok = found
		return n
	}
	a.Addr = take(fieldAddr, c.hex)
	switch {
	case !ok || !l.has[fieldAddr]:
	case e.twoSyms:
		c.addressSymbol(l)
	case l.has[fieldDSO] && !l.has[fieldIP]: // what is printed is of the address, of whatever event
		if ok = bytes.HasSuffix(bytes.TrimRight(c.b, " "), []byte(")")); ok {
			c.addressSymbol(l)
		}
	}
	source := DataSrc(take(fieldDataSrc, c.hex))
	if l.has[fieldDataSrc] && ok {
		ok = c.source()
	}
	a.Latency = take(fieldWeight, c.decimal)
	take(fieldInsLat, c.decimal)
	take(fieldRetireLat, c.decimal)
	a.IP = take(fieldIP, c.hex)
	if ok && (l.has[fieldSym] || l.has[fieldDSO]) && l.has[fieldIP] {
		a.Symbol, ok = c.symbolAndFile(l)
	}
	a.Phys = take(fieldPhys, c.hex)
	for _, f := range []field{fieldDataPage, fieldCodePage} {
		if ok && l.has[f] {
			w := c.word()
			ok = pageSize(w)
			c.b = c.b[len(w):]
		}
	}
	if op := source.Op(); op != memtrace.OpUnknown {
		a.Op = op
	}
	a.Level = source.Level()
	return ok && len(c.word()) == 0
}

// symbolAndFile takes the symbol and the file of an instruction, as far as they are printed.
func (c *cursor) symbolAndFile(l *layout) (string, bool) {
	name, ok := "", true
	if l.has[fieldSym] && !l.has[fieldDSO] {
		return c.symbolAlone()
	}
	if l.has[fieldSym] {
		name, ok = c.symbol()
	}
	at := c.file()
	if at < 0 || len(bytes.TrimSpace(c.b[:at])) > 0 {
		return name, ok && !l.has[fieldDSO]
	}
	depth := 0
	for i, b := range c.b[at:] {
		switch b {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				c.b = c.b[at+i+1:]
				return name, ok
			}
		}
	}
	return name, false
}

// symbolAlone takes a symbol without a file: up to the numbers at the end of the line.
func (c *cursor) symbolAlone() (string, bool) {
	c.b = bytes.TrimLeft(c.b, " ")
	end := len(bytes.TrimRight(c.b, " "))
	for {
		from := bytes.LastIndexByte(c.b[:end], ' ') + 1
		word := c.b[from:end]
		if _, ok := hex(word); from == 0 || !ok && !pageSize(word) {
			break
		}
		end = len(bytes.TrimRight(c.b[:from], " "))
	}
	rest := c.b[end:]
	c.b = c.b[:end]
	name, ok := c.symbol()
	c.b = rest
	return name, ok
}

// guess finds out what a line has. nil: nothing that is known.
func guess(rest []byte, e event) *layout {
	for _, fields := range shapes(bytes.IndexByte(rest, '|') >= 0) {
		l := &layout{}
		for _, f := range fields {
			l.has[f] = true
		}
		var a memtrace.Access
		if l.parse(rest, e, &a) && likely(&a) {
			return l
		}
	}
	return nil
}

// likely reports whether a parsed line is plausible: a latency is not an address, an address of an instruction no
// latency, and no name of a function begins with one.
func likely(a *memtrace.Access) bool {
	const longest, lowest = 1 << 24, 1 << 16
	first, _, more := strings.Cut(a.Symbol, " ")
	_, number := hex([]byte(first))
	return a.Latency < longest && (a.IP == 0 || a.IP >= lowest) &&
		!(number && (more && len(first) >= 6 || len(first) >= 8))
}

// shapes are the fields that perf script prints by default and in common -F lists, in the order in which they are
// tried: a call chain's address of the instruction is on the next line.
func shapes(source bool) [][]field {
	first := [][]field{{fieldAddr}, {fieldAddr, fieldWeight}, {}}
	if source {
		first = [][]field{{fieldAddr, fieldDataSrc}}
		for _, f := range []field{fieldWeight, fieldInsLat, fieldRetireLat} {
			first = append(first, append(slices.Clone(first[len(first)-1]), f))
		}
		first = append(first, []field{fieldDataSrc})
	}
	var tries [][]field
	for _, place := range [][]field{{fieldIP, fieldSym, fieldDSO}, {fieldIP, fieldSym}} {
		for _, fields := range first {
			for _, end := range [][]field{{}, {fieldPhys}, {fieldPhys, fieldDataPage}, {fieldDataPage},
				{fieldPhys, fieldDataPage, fieldCodePage}} {
				tries = append(tries, slices.Concat(fields, place, end))
			}
		}
	}
	// Numbers alone: what follows an address is a latency, if it can be one.
	tries = append(tries, first...)
	for _, fields := range first {
		if len(fields) > 0 {
			tries = append(tries, slices.Concat(fields, []field{fieldIP}))
		}
	}
	return tries
}
