package process

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// EnergyZone is an energy counter of processors or memory (RAPL, running average power limit), which Linux exports for
// processors of Intel and AMD: Documentation/power/powercap/powercap.rst of the kernel.
type EnergyZone struct {
	Name string // package-0; of a zone within it package-0/dram
	file string // its counter
	most uint64 // µJ from which the counter begins anew; 0: not known
}

// EnergyZones lists the packages and their memory, by name. core and uncore, which are parts of a package, and psys,
// which contains packages, are left out: sums over zones count nothing twice. root is the file system's.
func EnergyZones(root fs.FS) []EnergyZone {
	names := map[string]string{} // of zones by directory
	var zones []EnergyZone
	dirs, _ := fs.Glob(root, "sys/class/powercap/intel-rapl:*") // also AMD's; parents come before what is in them
	for _, dir := range dirs {
		text, err := fs.ReadFile(root, path.Join(dir, "name"))
		if err != nil {
			continue
		}
		name := strings.TrimSpace(string(text))
		names[dir] = name
		parent := names[dir[:strings.LastIndexByte(dir, ':')]]
		if name == "dram" && strings.HasPrefix(parent, "package-") {
			name = parent + "/dram"
		} else if !strings.HasPrefix(name, "package-") {
			continue
		}
		most, _ := energyNumber(root, path.Join(dir, "max_energy_range_uj"))
		zones = append(zones, EnergyZone{name, path.Join(dir, "energy_uj"), most})
	}
	slices.SortFunc(zones, func(a, b EnergyZone) int { return strings.Compare(a.Name, b.Name) })
	return zones
}

// Read is the zone's counter in µJ. Since Linux 5.10 only root may read it.
func (z *EnergyZone) Read(root fs.FS) (uint64, error) { return energyNumber(root, z.file) }

// Used is the energy in µJ between two readings, of which the counter began anew at most once; false: not known.
func (z *EnergyZone) Used(before, after uint64) (uint64, bool) {
	if after >= before {
		return after - before, true
	}
	return z.most - before + after, z.most >= before
}

func energyNumber(root fs.FS, name string) (uint64, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read /%s: %w", name, err)
	}
	return n, nil
}
