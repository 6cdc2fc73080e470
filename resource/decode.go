package resource

import (
	"encoding/json"
	"fmt"
)

// Version is that of the events in this package: a key that changes its meaning raises it.
const Version = 1

// New returns a pointer to a zero event of the kind's struct: *Compute for KindCompute. It is nil for a kind that
// does not exist.
func New(k Kind) any {
	if k >= kindCount {
		return nil
	}
	return makers[k]()
}

var makers = [kindCount]func() any{
	KindSessionStart:   func() any { return new(SessionStart) },
	KindTrackingBegin:  func() any { return new(TrackingBegin) },
	KindLayerBegin:     func() any { return new(LayerBegin) },
	KindLayerEnd:       func() any { return new(LayerEnd) },
	KindComponentBegin: func() any { return new(ComponentBegin) },
	KindComponentEnd:   func() any { return new(ComponentEnd) },
	KindAllocation:     func() any { return new(Allocation) },
	KindCompute:        func() any { return new(Compute) },
	KindHandoff:        func() any { return new(Handoff) },
	KindKV:             func() any { return new(KV) },
	KindMLP:            func() any { return new(MLP) },
	KindSummary:        func() any { return new(Summary) },
	KindSessionEnd:     func() any { return new(SessionEnd) },
	KindDeallocation:   func() any { return new(Deallocation) },
	KindRouting:        func() any { return new(Routing) },
	KindSampling:       func() any { return new(Sampling) },
	KindInputTokens:    func() any { return new(InputTokens) },
	KindOutputToken:    func() any { return new(OutputToken) },
	KindPhase:          func() any { return new(Phase) },
	KindLoss:           func() any { return new(Loss) },
	KindLevel:          func() any { return new(LevelChange) },
	KindGraph:          func() any { return new(Graph) },
	KindModel:          func() any { return new(Model) },
	KindTensor:         func() any { return new(TensorInfo) },
	KindStepBegin:      func() any { return new(StepBegin) },
	KindStepEnd:        func() any { return new(StepEnd) },
	KindGPU:            func() any { return new(GPUSample) },
	KindRAPL:           func() any { return new(RAPLSample) },
	KindEnergy:         func() any { return new(Energy) },
	KindRequestEnergy:  func() any { return new(RequestEnergy) },
	KindGraphEnergy:    func() any { return new(GraphEnergy) },
}

// Decode reads one line of JSON into the struct of its kind and returns a pointer to it. Keys that the struct does
// not have are passed over. It fails where the line is not a JSON object, has no known "event", or a key has a value
// of another type.
func Decode(line []byte) (any, error) {
	var head struct {
		Event string `json:"event"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	kind, err := ParseKind(head.Event)
	if err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	event := New(kind)
	if err := json.Unmarshal(line, event); err != nil {
		return nil, fmt.Errorf("read %v: %w", kind, err)
	}
	return event, nil
}
