package rundir

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Hot path: no allocation where dst has room.

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. What is not UTF-8 becomes U+FFFD; U+2028 and U+2029 are escaped, for
// readers that take lines of JavaScript. The bytes are those of encoding/json without escaping of HTML.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = appendEscape(append(dst, s[from:i]...), c)
			i++
			from = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(append(dst, s[from:i]...), `\ufffd`...)
			from = i + n
		case r == '\u2028' || r == '\u2029':
			dst = append(append(dst, s[from:i]...), `\u202`...)
			dst = append(dst, hexDigits[r&0xf])
			from = i + n
		}
		i += n
	}
	return append(append(dst, s[from:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}

// Line is a JSON object in the making. Keys are written as they are: they must need no escaping. Its zero value is
// ready for Begin.
type Line struct{ b []byte }

// Begin starts a new object, in the memory of the one before.
func (l *Line) Begin() { l.b = append(l.b[:0], '{') }

// End finishes the object and returns it, without a line feed. It is valid until the next Begin.
func (l *Line) End() []byte {
	l.b = append(l.b, '}')
	return l.b
}

// Fields appends ready-made fields, `"a":1,"b":2`, or nothing.
func (l *Line) Fields(fields []byte) {
	if len(fields) == 0 {
		return
	}
	l.b = append(appendComma(l.b), fields...)
}

// Quoted appends a whole number as a text, after Key.
func (l *Line) Quoted(v int64) { l.b = append(strconv.AppendInt(append(l.b, '"'), v, 10), '"') }

// Open begins an object within the object; Shut ends it.
func (l *Line) Open(key string) {
	l.Key(key)
	l.b = append(l.b, '{')
}

// Shut ends the object that Open began.
func (l *Line) Shut() { l.b = append(l.b, '}') }

// appendComma separates a field from the one before.
func appendComma(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] != '{' {
		b = append(b, ',')
	}
	return b
}

// Key begins a field; its value comes by Append.
func (l *Line) Key(key string) {
	l.b = append(append(append(appendComma(l.b), '"'), key...), '"', ':')
}

// Append hands the object's bytes to f, which appends a value and returns them.
func (l *Line) Append(f func(dst []byte) []byte) { l.b = f(l.b) }

// Int adds a whole number.
func (l *Line) Int(key string, v int64) {
	l.Key(key)
	l.b = strconv.AppendInt(l.b, v, 10)
}

// Uint adds a whole number from 0.
func (l *Line) Uint(key string, v uint64) {
	l.Key(key)
	l.b = strconv.AppendUint(l.b, v, 10)
}

// Float adds a number with six significant digits; one that is not finite is left out, for JSON has none.
func (l *Line) Float(key string, v float64) {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return
	}
	l.Key(key)
	l.b = strconv.AppendFloat(l.b, v, 'g', 6, 64)
}

// String adds a text.
func (l *Line) String(key, v string) {
	l.Key(key)
	l.b = AppendString(l.b, v)
}

// Bool adds true or false.
func (l *Line) Bool(key string, v bool) {
	l.Key(key)
	l.b = strconv.AppendBool(l.b, v)
}

// Ints adds a list of whole numbers.
func (l *Line) Ints(key string, values []int32) {
	l.Key(key)
	l.b = append(l.b, '[')
	for i, v := range values {
		if i > 0 {
			l.b = append(l.b, ',')
		}
		l.b = strconv.AppendInt(l.b, int64(v), 10)
	}
	l.b = append(l.b, ']')
}

// Floats adds a list of numbers, in the fewest digits that read back as they are; one that is not finite is null.
func (l *Line) Floats(key string, values []float32) {
	l.Key(key)
	l.b = append(l.b, '[')
	for i, v := range values {
		if i > 0 {
			l.b = append(l.b, ',')
		}
		if w := float64(v); math.IsInf(w, 0) || math.IsNaN(w) {
			l.b = append(l.b, "null"...)
		} else {
			l.b = strconv.AppendFloat(l.b, w, 'g', -1, 32)
		}
	}
	l.b = append(l.b, ']')
}
