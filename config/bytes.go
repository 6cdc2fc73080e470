package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a number of bytes.
type Bytes int64

// Units of Bytes: binary, and GB, the decimal unit in which the presets state memory.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	GB  Bytes = 1e9
)

// byteUnits holds every accepted suffix in lower case. As in GNU tools, a bare letter is binary and KB, MB, GB are
// decimal.
var byteUnits = map[string]float64{
	"": 1, "b": 1,
	"k": 1 << 10, "ki": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mi": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gi": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "ti": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// ParseBytes reads a size such as 256M, 1.5GiB or 24GB. K, M, G and T are powers of 1024, with or without iB; KB,
// MB, GB and TB are powers of 1000.
func ParseBytes(s string) (Bytes, error) {
	text := strings.TrimSpace(s)
	digits := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if digits < 0 {
		digits = len(text)
	}
	unit, known := byteUnits[strings.ToLower(strings.TrimSpace(text[digits:]))]
	number, err := strconv.ParseFloat(text[:digits], 64)
	if !known || err != nil {
		return 0, fmt.Errorf("size %q: write a number and a unit such as 256M, 1.5G, 512KiB or 24GB", s)
	}
	if number*unit >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q: more bytes than can be counted; write a smaller one", s)
	}
	return Bytes(number * unit), nil
}

// String writes the size in the largest unit that states it exactly, such as 256M, 24GB or 1000.
func (b Bytes) String() string {
	units := []struct {
		size   Bytes
		suffix string
	}{{1 << 40, "T"}, {GiB, "G"}, {GB, "GB"}, {MiB, "M"}, {1e6, "MB"}, {KiB, "K"}}
	for _, u := range units {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}
