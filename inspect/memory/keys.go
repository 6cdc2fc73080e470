package memory

import "github.com/llamatap/llamatap/memtrace"

// computeAll has the keys of what mrm-trace's compute_all returns: by region a list, by type of region an object.
type computeAll struct {
	RetentionPerRegion  []ofRegion[*Retention]   `json:"retention_per_region"`
	RetentionSummary    map[string]*Retention    `json:"retention_summary"`
	WriteOnce           map[string]*float64      `json:"write_once"`
	ReadFreq            map[string]*float64      `json:"read_freq"`
	WorkingSetPerRegion []ofRegion[[]WorkingSet] `json:"working_set_per_region"`
	WorkingSetSummary   map[string][]WorkingSet  `json:"working_set_summary"`
	LocalityPerRegion   []ofRegion[locality]     `json:"locality_per_region"`
	LocalitySummary     map[string]locality      `json:"locality_summary"`
	IAI                 map[string]*Spread       `json:"iai"`
	Suitability         map[string]suitability   `json:"suitability"`
}

// ofRegion is one metric of a region.
type ofRegion[T any] struct {
	ID    int    `json:"region_id"`
	Type  string `json:"region_type"`
	Name  string `json:"name,omitempty"`
	Value T      `json:"value"`
}

type locality struct {
	Score  *float64 `json:"locality_score,omitempty"`
	Reuse  *Spread  `json:"reuse_distance_bytes,omitempty"`
	Stride *Spread  `json:"stride_bytes,omitempty"`
}

type suitability struct {
	Label    string `json:"mrm_label"`
	Censored string `json:"mrm_label_censored"`
}

func computeAllOf(r *Report) computeAll {
	c := computeAll{
		RetentionPerRegion: []ofRegion[*Retention]{}, WorkingSetPerRegion: []ofRegion[[]WorkingSet]{},
		LocalityPerRegion: []ofRegion[locality]{},
		RetentionSummary:  map[string]*Retention{}, WriteOnce: map[string]*float64{}, ReadFreq: map[string]*float64{},
		WorkingSetSummary: map[string][]WorkingSet{}, LocalitySummary: map[string]locality{}, IAI: map[string]*Spread{},
		Suitability: map[string]suitability{},
	}
	for i := range r.Types {
		t := &r.Types[i]
		c.RetentionSummary[t.Type], c.WriteOnce[t.Type], c.ReadFreq[t.Type] = t.Retention, t.WriteOnce, t.ReadFrequency
		c.WorkingSetSummary[t.Type], c.IAI[t.Type] = t.WorkingSet, t.IAI
		c.LocalitySummary[t.Type] = locality{t.Locality, t.Reuse, t.Stride}
		if t.Label != "" {
			c.Suitability[t.Type] = suitability{t.Label, t.LabelCensored}
		}
	}
	for i := range r.Regions {
		g := &r.Regions[i]
		if g.Retention != nil {
			c.RetentionPerRegion = append(c.RetentionPerRegion, ofRegion[*Retention]{g.ID, g.Type, g.Name, g.Retention})
		}
		c.WorkingSetPerRegion = append(c.WorkingSetPerRegion,
			ofRegion[[]WorkingSet]{g.ID, g.Type, g.Name, g.WorkingSet})
		c.LocalityPerRegion = append(c.LocalityPerRegion,
			ofRegion[locality]{g.ID, g.Type, g.Name, locality{g.Locality, g.Reuse, g.Stride}})
	}
	return c
}

// stepRow is one execution of a graph.
type stepRow struct {
	Graph   int64             `json:"graph_seq"`
	Token   *int64            `json:"token_index,omitempty"`
	NS      int64             `json:"ts_ns"`
	Read    map[string]uint64 `json:"bytes_read"`
	Written map[string]uint64 `json:"bytes_written"`
}

func stepsOf(r *Report) []stepRow {
	rows := make([]stepRow, len(r.Traffic.Steps))
	for i := range r.Traffic.Steps {
		s := &r.Traffic.Steps[i]
		rows[i] = stepRow{Graph: s.Graph, NS: s.NS}
		if s.Token >= 0 {
			rows[i].Token = &s.Token
		}
		rows[i].Read, rows[i].Written = byType(&s.Moved)
	}
	return rows
}

// byType names what was moved.
func byType(m *memtrace.Moved) (read, written map[string]uint64) {
	read, written = map[string]uint64{}, map[string]uint64{}
	for _, t := range memtrace.RegionTypes() {
		if r, w := m.Of(t); r+w > 0 {
			read[t.String()], written[t.String()] = r, w
		}
	}
	return read, written
}

// bandwidth is bytes over time.
type bandwidth struct {
	Begin int64    `json:"begin_unix_ns"`
	BinS  float64  `json:"bin_s"`
	Bins  []binRow `json:"bins"`
}

type binRow struct {
	AtS     float64           `json:"at_s"`
	Read    map[string]uint64 `json:"bytes_read"`
	Written map[string]uint64 `json:"bytes_written"`
}

func bandwidthOf(r *Report) *bandwidth {
	t := &r.Traffic
	if len(t.Bins) == 0 {
		return nil
	}
	b := &bandwidth{Begin: t.First, BinS: float64(t.WidthNS) / 1e9}
	for i := range t.Bins {
		read, written := byType(&t.Bins[i])
		if len(read) > 0 {
			b.Bins = append(b.Bins, binRow{float64(int64(i)*t.WidthNS) / 1e9, read, written})
		}
	}
	return b
}
