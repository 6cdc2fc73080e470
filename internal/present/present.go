// Package present formats figures for people: bytes, durations, counts and shares, each in one unit system, and the
// account of a run, so that two commands print the same figure of a run alike. Files and JSON carry plain numbers;
// nothing here is parsed again. Out and Err are where commands print.
package present

import (
	"fmt"
	"strconv"
	"time"
)

// Number is what a figure can be given as.
type Number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// Bytes formats an amount of memory or storage in binary units with three significant digits: 512 B, 4.07 MiB.
func Bytes[N Number](n N) string {
	value, unit := float64(n), -1
	for value >= 1023.5 && unit < 5 {
		value /= 1024
		unit++
	}
	if unit < 0 {
		return fmt.Sprintf("%.0f B", value)
	}
	return fmt.Sprintf("%s %ciB", Digits(value), "KMGTPE"[unit])
}

// Rate formats bytes per second in decimal units, as bandwidths of memory and disks are stated: 31.4 GB/s.
func Rate(bytesPerSecond float64) string {
	value, unit := bytesPerSecond, 0
	for value >= 999.5 && unit < 4 {
		value /= 1000
		unit++
	}
	return Digits(value) + " " + []string{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}[unit]
}

// Count formats a large number, such as of FLOPs, with a decimal prefix: 23.3 G.
func Count[N Number](n N) string {
	value, unit := float64(n), -1
	for value >= 999.5 && unit < 5 {
		value /= 1000
		unit++
	}
	if unit < 0 {
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
	return Digits(value) + " " + string("kMGTPE"[unit])
}

// Plural is a count with its noun: 1 layer, 2 layers.
func Plural[N ~int | ~int64 | ~uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Duration formats a duration with three significant digits up to two minutes, and in whole seconds above.
func Duration(d time.Duration) string {
	switch value := float64(d); {
	case d == 0:
		return "0 s"
	case value >= 119.5e9:
		return d.Round(time.Second).String()
	case value >= 0.9995e9:
		return Digits(value/1e9) + " s"
	case value >= 0.9995e6:
		return Digits(value/1e6) + " ms"
	case value >= 999.5:
		return Digits(value/1e3) + " µs"
	}
	return fmt.Sprintf("%d ns", int64(d))
}

// Seconds formats a duration given in seconds, as Duration does; more than 291 years are as many.
func Seconds(s float64) string { return Duration(time.Duration(min(s*1e9, 9.2e18))) }

// Nanoseconds formats a duration given in ns, as Duration does.
func Nanoseconds(ns int64) string { return Duration(time.Duration(ns)) }

// Percent formats a share of 1: 12.3 %.
func Percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// Maybe formats a value that may be missing: "-" where it is.
func Maybe[N any](value *N, format func(N) string) string {
	if value == nil {
		return "-"
	}
	return format(*value)
}

// Digits formats a value of at most four digits before the point with three significant digits.
func Digits(value float64) string {
	switch {
	case value >= 99.95:
		return fmt.Sprintf("%.0f", value)
	case value >= 9.995:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}
