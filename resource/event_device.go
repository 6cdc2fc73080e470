package resource

import "fmt"

// GPUSample is how a GPU was used in an interval, by all processes, as NVML reports it. A figure that the GPU does not
// report is absent.
type GPUSample struct {
	Header
	Index int    `json:"gpu_index"` // NVML's number
	Name  string `json:"gpu_name"`
	// WindowNS is the time since the sample before; absent in the first.
	WindowNS *int64 `json:"window_ns,omitempty"`
	// Utilization and MemoryUtilization are the shares of the time in which some kernel ran, and in which the GPU's
	// memory was read or written. The time is UtilizationNS, or where that is absent NVML's last sample period.
	Utilization       *float64 `json:"gpu_utilization_percent,omitempty"`
	MemoryUtilization *float64 `json:"memory_utilization_percent,omitempty"`
	UtilizationNS     *int64   `json:"utilization_window_ns,omitempty"`
	UtilizationSource string   `json:"utilization_source,omitempty"`
	MemoryUsed        *int64   `json:"gpu_memory_used_bytes,omitempty"`
	MemoryTotal       *int64   `json:"gpu_memory_total_bytes,omitempty"`
	SMClockMHz        *int64   `json:"sm_clock_mhz,omitempty"`
	MemoryClockMHz    *int64   `json:"memory_clock_mhz,omitempty"`
	PCIeTxKBPerS      *int64   `json:"pcie_tx_kb_per_s,omitempty"`
	PCIeRxKBPerS      *int64   `json:"pcie_rx_kb_per_s,omitempty"`
	PCIeWindowNS      *int64   `json:"pcie_window_ns,omitempty"`
	PowerW            *float64 `json:"gpu_power_w,omitempty"`
	EnergyJ           *float64 `json:"gpu_energy_j,omitempty"` // used within the window
	EnergySource      string   `json:"energy_source,omitempty"`
}

// RAPLSample is what the processors of a package or its memory used in an interval, by all processes, as their energy
// counters say.
type RAPLSample struct {
	Header
	Domain   string  `json:"domain"`
	WindowNS int64   `json:"window_ns"` // since the sample before
	EnergyJ  float64 `json:"energy_j"`
}

// Energy is what a device used in the executions of a phase, or outside of them, over the session.
type Energy struct {
	Header
	EnergyUse
}

// EnergyUse is the energy of a device in the executions of a phase: each window between two readings is divided by time
// among the executions in it and the rest. The sum over phases is what was read.
type EnergyUse struct {
	Domain       string   `json:"domain"`             // gpu-0, package-0, package-0/dram
	Phase        string   `json:"phase"`              // of executions; mixed: of two; outside: no execution
	EnergyJ      *float64 `json:"energy_j,omitempty"` // absent where no window has a part of the phase
	EnergySource string   `json:"energy_source"`
	DurationNS   int64    `json:"duration_ns"` // in windows
	Windows      int64    `json:"windows"`     // in which the phase has a part
	// BusyShare is the share of those windows in executions, absent outside of them. SharedShare is the share of
	// EnergyJ from windows that have executions of another phase too; outside of them, of any.
	BusyShare   *float64 `json:"busy_share,omitempty"`
	SharedShare *float64 `json:"shared_share,omitempty"`
	// UncoveredNS is the time of executions in no window: JoulesPerToken is absent then.
	UncoveredNS    int64    `json:"uncovered_ns,omitempty"`
	Tokens         *int64   `json:"tokens,omitempty"`
	JoulesPerToken *float64 `json:"joules_per_token,omitempty"`
}

// RequestEnergy is what a device used for a request, over the session. It is not measured: the share of an execution in
// a window is divided evenly among its rows, each of which belongs to a request. The sum over requests is the energy of
// prefill, decode and mixed executions.
type RequestEnergy struct {
	Header
	SeqID        *int32  `json:"seq_id,omitempty"`
	Request      *int32  `json:"request,omitempty"` // absent for rows whose request is not known
	Domain       string  `json:"domain"`
	Phase        string  `json:"phase"` // of the rows: prefill, decode
	ApportionedJ float64 `json:"apportioned_j"`
	EnergySource string  `json:"energy_source"`
	Tokens       int64   `json:"tokens"`
	UncoveredNS  int64   `json:"uncovered_ns,omitempty"`
}

// GraphEnergy is what a device used for an execution that has tokens: not measured, but its share by time of the
// windows that it ran in.
type GraphEnergy struct {
	Header
	Exec         uint64  `json:"exec"`
	Domain       string  `json:"domain"`
	Phase        string  `json:"phase"` // prefill, decode, mixed
	ApportionedJ float64 `json:"apportioned_j"`
	EnergySource string  `json:"energy_source"`
	Tokens       int64   `json:"tokens"` // rows
	// JoulesPerToken is the even share of a row, absent where UncoveredNS of the execution lie in no window.
	JoulesPerToken *float64 `json:"joules_per_token,omitempty"`
	UncoveredNS    int64    `json:"uncovered_ns,omitempty"`
	// LayerJ is the part of each layer, by its measured time: the rest of ApportionedJ is of no layer, or passed
	// between nodes. Absent where layers were not timed.
	LayerJ []float64 `json:"layer_j,omitempty"`
}

// Joules is the known energy of phases by device and phase, over all sessions.
func Joules(rows []EnergyUse) map[string]map[string]float64 {
	all := map[string]map[string]float64{}
	for i := range rows {
		if r := &rows[i]; r.EnergyJ != nil {
			if all[r.Domain] == nil {
				all[r.Domain] = map[string]float64{}
			}
			all[r.Domain][r.Phase] += *r.EnergyJ
		}
	}
	return all
}

// EnergyText describes the energy of phases, a line per device.
func EnergyText(rows []EnergyUse) []string {
	var lines []string
	for i, r := range rows {
		if i == 0 || rows[i-1].Domain != r.Domain {
			lines = append(lines, r.Domain+": ")
			if r.EnergySource == PowerSamples {
				lines[len(lines)-1] = r.Domain + ", by samples of its power: "
			}
		} else {
			lines[len(lines)-1] += ", "
		}
		text := r.Phase
		if text == "outside" {
			text = "outside executions"
		}
		if r.EnergyJ == nil {
			text += " unknown"
		} else {
			text += fmt.Sprintf(" %.4g J", *r.EnergyJ)
		}
		if r.JoulesPerToken != nil {
			text += fmt.Sprintf(" (%.3g J/token", *r.JoulesPerToken)
			if r.SharedShare != nil && *r.SharedShare >= 0.5 {
				text += fmt.Sprintf("; %.0f %% shared", 100**r.SharedShare)
			}
			text += ")"
		}
		lines[len(lines)-1] += text
	}
	return lines
}

// What the energy of a window was read from.
const (
	EnergyCounter = "energy_counter" // the device's counter, before and after the window
	PowerSamples  = "power_samples"  // the mean of the power before and after it, by its length
)
