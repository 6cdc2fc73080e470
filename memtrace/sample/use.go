package sample

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/memtrace"
)

// MetadataKey is the key of a table of samples that holds how they were taken, as JSON.
const MetadataKey = "llamatap_samples"

// Use is the entry for samples in metadata.json. Figures are measured.
type Use struct {
	Collectors []CollectorUse `json:"collectors"`
	Missing    []string       `json:"missing,omitempty"` // that could not run, and why
	// Others are samples of processes that the one that is recorded has started, or was started by.
	Others uint64 `json:"other_processes,omitempty"`
	// Lost are accesses that were sampled and not written, by where they were lost: the queue in which they wait to be
	// understood, and the table, in which rows of other recorders may be among the lost.
	LostQueue uint64 `json:"lost_queue,omitempty"`
	LostTable uint64 `json:"lost_table,omitempty"`
	Error     string `json:"error,omitempty"`
	// Lossy reports whether samples or a collector that was asked for are missing.
	Lossy bool `json:"lossy"`
}

// CollectorUse is the entry for one collector.
type CollectorUse struct {
	Collector string   `json:"collector"` // perf, faults or pages
	Notes     []string `json:"notes,omitempty"`
	RingBytes int      `json:"ring_bytes,omitempty"` // of each CPU
	Samples   uint64   `json:"samples"`
	Tally
	WithoutAddress uint64 `json:"without_address,omitempty"`
	// LostRing are those that found no room in a ring, LostHardware those that the processor dropped, Undecodable
	// those that could not be read.
	LostRing     uint64   `json:"lost_ring,omitempty"`
	LostHardware uint64   `json:"lost_hardware,omitempty"`
	Undecodable  uint64   `json:"undecodable,omitempty"`
	Throttled    uint64   `json:"throttled,omitempty"` // times at which the kernel stopped it for a while
	Twice        uint64   `json:"twice,omitempty"`     // reported by two events, and written once
	Error        string   `json:"error,omitempty"`
	Pages        *PageUse `json:"pages,omitempty"`
}

// PageUse is what scanning for written pages took, and missed.
type PageUse struct {
	Ranges  int    `json:"ranges"` // of memory that were watched
	Scans   uint64 `json:"scans"`
	ScanNS  int64  `json:"scan_ns"`
	Pages   uint64 `json:"pages_written"`
	Shared  uint64 `json:"pages_of_several_regions"` // of which it is not known which one was written
	Renewed uint64 `json:"ranges_mapped_anew,omitempty"`
	// Unseen are graphs that ended without a scan: what they wrote is not known.
	Unseen uint64 `json:"graphs_unseen,omitempty"`
}

// Tallies count rows by collector.
type Tallies [memtrace.CollectorPage + 1]Tally

// Use returns what the collectors have read so far, with the rows that were written of it.
func (s *Set) Use(rows *Tallies) *Use {
	u := &Use{Collectors: []CollectorUse{}}
	lost, err := s.queue.Lost()
	if u.LostQueue = lost; err != nil {
		u.Error = err.Error()
	}
	for _, c := range s.collectors {
		stats := c.Stats()
		collectorUse := CollectorUse{
			Collector: c.Name, Notes: c.Notes, RingBytes: c.Ring, Samples: stats.Samples,
			WithoutAddress: stats.WithoutAddress,
			LostRing:       stats.Lost, LostHardware: stats.LostSamples, Undecodable: stats.Bad,
			Throttled: stats.Throttles,
			Twice:     stats.Twice,
		}
		for k := range rows {
			if k := memtrace.Collector(k); k != memtrace.CollectorPage &&
				(k == memtrace.CollectorFault) == (c.Name == Faults) {
				t := &rows[k]
				if t.Rows > 0 && collectorUse.Types == nil {
					collectorUse.Types = map[string]uint64{}
				}
				collectorUse.Rows += t.Rows
				collectorUse.Unknown += t.Unknown
				for name, n := range t.Types {
					collectorUse.Types[name] += n
				}
			}
		}
		if err := c.Err(); err != nil {
			collectorUse.Error = err.Error()
		}
		u.Collectors = append(u.Collectors, collectorUse)
	}
	return u
}

// Complete finds out whether something is missing.
func (u *Use) Complete() {
	u.Lossy = len(u.Missing) > 0 || u.Error != "" || u.Lost() > 0
	for i := range u.Collectors {
		c := &u.Collectors[i]
		u.Lossy = u.Lossy || c.Throttled > 0 || c.Error != "" || c.Pages != nil && c.Pages.Renewed+c.Pages.Unseen > 0
	}
}

func (u *CollectorUse) lost() uint64 { return u.LostRing + u.LostHardware + u.Undecodable }

// Lost is how many samples are missing.
func (u *Use) Lost() uint64 {
	n := u.LostQueue + u.LostTable
	for i := range u.Collectors {
		n += u.Collectors[i].lost()
	}
	return n
}

// Words say in a line what was sampled, and lost.
func (u *Use) Words() string {
	var parts []string
	for i := range u.Collectors {
		parts = append(parts, u.Collectors[i].summary())
	}
	for _, m := range u.Missing {
		name, _, _ := strings.Cut(m, ":")
		parts = append(parts, "no "+name)
	}
	if n := u.Lost(); n > 0 {
		parts = append(parts, fmt.Sprintf("LOST %d", n))
	}
	return strings.Join(parts, "; ")
}

// summary summarises one collector.
func (u *CollectorUse) summary() string {
	text := fmt.Sprintf("%s %d", u.Collector, u.Samples)
	if u.Pages != nil {
		text += " written"
	}
	if u.Unknown > 0 && u.Pages == nil {
		text += fmt.Sprintf(", %d of them nowhere that is known", u.Unknown)
	}
	if u.Throttled > 0 {
		text += fmt.Sprintf(", stopped %d times by the kernel for coming too often", u.Throttled)
	}
	if u.Pages != nil {
		text += fmt.Sprintf(", in %d scans", u.Pages.Scans)
		if u.Pages.Unseen > 0 {
			text += fmt.Sprintf(", those of %d graphs not seen", u.Pages.Unseen)
		}
	}
	return text
}

// Text is what the metadata of a table holds.
func (u *Use) Text() string {
	b, err := json.Marshal(u)
	if err != nil {
		return "{}"
	}
	return string(b)
}
