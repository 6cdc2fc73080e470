package rundir

// The files of a run directory. docs/RUN_DIRECTORY.md lists them; a line names the
// document that describes its file.
const (
	MetadataName = "metadata.json" // docs/RUN_DIRECTORY.md
	ManifestName = "manifest.json" // every other file, with its size and hash; only a sealed run has one
	TokensName   = "activations_tokens.json"
	StreamName   = "activations.stream"         // tensors (docs/STREAM_FORMAT.md); its index alongside
	EventsName   = "resource.jsonl"             // resource events (docs/EVENTS.md)
	TraceName    = "trace.parquet"              // memory accesses (docs/MEMORY.md)
	RegionsName  = "region_map.parquet"         // memory regions (docs/REGIONS.md)
	LivesName    = "kv_block_lifecycle.parquet" // lives of KV blocks (docs/KV.md)
	RequestsName = "requests.parquet"           // requests of a server (docs/REQUESTS.md)
	MarksName    = "markers.jsonl"              // markers of a recording, one JSON object a line (docs/MEMORY.md)
	ProcessName  = "process.jsonl"              // processes (docs/PROCESS.md)
	BlockIOName  = "block_io.jsonl"             // host metrics (docs/HOST.md), from here on
	SystemName   = "system_metrics.jsonl"
	ProfName     = "llm_prof.jsonl"
	HostSelfName = "host_self.jsonl"
	WaitsName    = "host_waits.jsonl"
	FaultsName   = "host_faults.jsonl"
	HostsName    = "hosts.jsonl"     // other hosts (docs/FLEET.md)
	MovesName    = "transfers.jsonl" // what was moved to devices and back (docs/FLEET.md)
	ControlName  = "control.jsonl"   // commands of a live run, one event a line; absent without one (docs/CONTROL.md)
	SocketName   = "control.sock"    // of a live run
	DerivedName  = "derived.json"    // exports of a sealed run
)
