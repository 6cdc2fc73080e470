package doctor

import "fmt"

// size writes bytes with the largest unit that leaves a whole part, in powers of 1024.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	at, v := 0, float64(n)
	for v >= 1024 && at < len(units)-1 {
		at, v = at+1, v/1024
	}
	if at == 0 || v >= 100 {
		return fmt.Sprintf("%.0f %s", v, units[at])
	}
	return fmt.Sprintf("%.1f %s", v, units[at])
}
