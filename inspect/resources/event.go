package resources

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/llamatap/llamatap/resource"
)

// KindOf finds the kind of a line without reading all of it where "event" is its first key, as it is in what
// llamatap writes. ok is false where the line is not a JSON object or its kind is not known.
func KindOf(line []byte) (kind resource.Kind, ok bool) {
	if rest, found := bytes.CutPrefix(line, []byte(`{"event":"`)); found {
		if end := bytes.IndexByte(rest, '"'); end >= 0 {
			kind, ok = kindOf[string(rest[:end])]
			return kind, ok
		}
	}
	var head struct {
		Event string `json:"event"`
	}
	if json.Unmarshal(line, &head) != nil {
		return 0, false
	}
	kind, ok = kindOf[head.Event]
	return kind, ok
}

var kindOf = func() map[string]resource.Kind {
	m := map[string]resource.Kind{}
	for i, name := range resource.Kinds() {
		m[name] = resource.Kind(i)
	}
	return m
}()

// badLine says what is wrong with a line that is not an event: the reason that encoding/json has, or an unknown kind.
func badLine(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return fmt.Errorf("empty")
	}
	if _, err := resource.Decode(line); err != nil {
		return err
	}
	return fmt.Errorf("no event")
}

// summed holds the kinds that are added up. Of the others it is only counted how many there are.
var summed = map[resource.Kind]bool{
	resource.KindSessionStart: true, resource.KindLevel: true, resource.KindCompute: true, resource.KindGraph: true,
	resource.KindPhase:       true,
	resource.KindOutputToken: true, resource.KindAllocation: true, resource.KindDeallocation: true,
	resource.KindKV: true, resource.KindRouting: true,
	resource.KindLoss: true, resource.KindSummary: true, resource.KindSessionEnd: true, resource.KindComponentEnd: true,
	resource.KindGPU: true, resource.KindRAPL: true, resource.KindEnergy: true, resource.KindGraphEnergy: true,
}

// work is what is added up of a compute_execution, of which there are most: the keys of [resource.Compute] that
// count, without memory of its own. A figure below 0 is absent.
type work struct {
	ResourceID      string              `json:"resource_id"`
	Exec            uint64              `json:"exec"`
	Phase           string              `json:"phase"`
	Operation       string              `json:"operation"`
	Name            string              `json:"name"`
	ComponentType   string              `json:"component_type"`
	LayerID         int                 `json:"layer_id"`
	Within          string              `json:"within"`
	NodeCount       int                 `json:"node_count"`
	TimeSource      resource.TimeSource `json:"time_source"`
	DurationNS      int64               `json:"duration_ns"`
	LookingNS       int64               `json:"looking_ns"`
	FLOPs           int64               `json:"flops"`
	FLOPsUnmasked   int64               `json:"flops_unmasked"`
	OpsWithoutFLOPs int                 `json:"ops_without_flops"`
	OpsWithoutMask  int                 `json:"ops_without_mask"`
	BytesRead       int64               `json:"bytes_read"`
	BytesWritten    int64               `json:"bytes_written"`
	OpsWithoutBytes int                 `json:"ops_without_bytes"`
	RooflineShare   float64             `json:"roofline_share"`
}

// adds reports whether no other event has these costs: those of a whole graph are its graph event's, those of an op
// within a range the range's.
func (w *work) adds() bool {
	return w.Within == "" && w.TimeSource != resource.TimeGraph && w.TimeSource != resource.TimeSync
}

// op is what the costs of an op are added up by.
func (w *work) op() string {
	if w.TimeSource == resource.TimeRange && (w.NodeCount > 1 || w.Operation == opRange) {
		return SeveralOps
	}
	return w.Operation
}

// clear makes every figure absent.
func (w *work) clear() {
	*w = work{DurationNS: -1, LookingNS: -1, FLOPs: -1, FLOPsUnmasked: -1, BytesRead: -1, BytesWritten: -1,
		RooflineShare: -1}
}
