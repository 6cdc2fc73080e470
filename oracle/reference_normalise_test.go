//go:build linux

package oracle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/stream"
)

// normalised is a recording without what differs between two runs of one command: times, addresses, process ids, run
// ids, versions and the command line. It maps the path of a file in the run directory to the file's parts.
type normalised map[string]fileParts

// fileParts are the parts of a file by name: the columns of a table, the fields of packets, the events of one type.
type fileParts map[string]*part

// A part is a sequence of values.
type part struct {
	lines []string
	// local means that the values depend on the processor, because ggml chooses its kernels by it. They are compared
	// between two recordings of one machine only.
	local bool
}

func (n normalised) add(file, name string, lines ...string) *part {
	if n[file] == nil {
		n[file] = fileParts{}
	}
	if n[file][name] == nil {
		n[file][name] = &part{}
	}
	p := n[file][name]
	p.lines = append(p.lines, lines...)
	return p
}

// digest is the number of values and a hash of them.
func (p *part) digest() string {
	h := sha256.New()
	for _, line := range p.lines {
		fmt.Fprintln(h, line)
	}
	return fmt.Sprintf("%d %.6x", len(p.lines), h.Sum(nil))
}

const masked = "*" // stands for a value that differs between two runs

// differs matches the names of fields whose values differ between two runs.
var differs = regexp.MustCompile(`_(ns|us|ms|seconds)$|^ns$|_per_s$|_gbps$|^(unix|mono)_|^timestamp$` +
	`|^(created|ended)$|address$|^addr$|_addr$|^[pt]id$|^(run|session)_id$|^memory_pressure$|^(path|file|out)$`)

// absent matches the names of fields that exist in some runs only, or whose content depends on the machine.
var absent = regexp.MustCompile(`^(host|command|clock|llamatap|llama|process_monitor|processes|memory_samples)$` +
	`|^(cut_ns|taken_ns|runnable_ns|resumed|segments)$`)

// resourceIDs end in a time.
var resourceIDs = regexp.MustCompile(`_\d{16}$`)

// scrub removes from a JSON value what differs between two runs.
func scrub(v any) any {
	switch v := v.(type) {
	case map[string]any:
		_, counted := v["packets"] // with bytes of tensors; other bytes are file sizes, which vary with times
		for name, value := range v {
			switch {
			case name == "bytes" && !counted:
				v[name] = masked
			case absent.MatchString(name):
				delete(v, name)
			case differs.MatchString(name):
				v[name] = masked
			default:
				v[name] = scrub(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = scrub(v[i])
		}
	case string:
		return resourceIDs.ReplaceAllString(v, "_"+masked)
	}
	return v
}

// compact renders a value with its keys in order.
func compact(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// normalise reads every file of run directories, except their tables.
func normalise(t *testing.T, dir string) normalised {
	t.Helper()
	n := normalised{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		segment, base, ok := strings.Cut(file, string(filepath.Separator))
		if ok && strings.HasPrefix(segment, "seg-") {
			// Where a segment ends depends on when its size was read, so segments are joined.
			switch file = "segments/" + base; base {
			case "activations.stream":
				n.stream(t, file, path)
				delete(n[file], "Offset")
			case "activations_tokens.json":
				n.document(t, file, content(t, path))
				delete(n[file], "total_tokens")
				delete(n[file], "capture_duration_seconds")
			}
			return nil
		}
		switch ext := filepath.Ext(file); {
		case strings.HasSuffix(file, ".stream"):
			n.stream(t, file, path)
		case ext == ".idx", ext == ".parquet":
			n.add(file, "exists") // read with the stream, and by normaliseTables
		case filepath.Base(file) == "resource.jsonl":
			n.events(t, file, content(t, path))
		case ext == ".jsonl":
			n.add(file, "exists") // samples of what the machine did meanwhile
		case ext == ".json":
			n.document(t, file, content(t, path))
		default:
			n.add(file, "exists")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stream adds the packets of a stream, field by field, and what its index holds of executions.
func (n normalised) stream(t *testing.T, file, path string) {
	t.Helper()
	r, err := stream.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// Where a packet lies and what it takes depends on how far its values can be compressed.
	local := []string{"Offset", "Stored", "CRC", "Saturated", "Underflow", "Error"}
	var data []byte
	for _, p := range r.Packets() {
		fields := reflect.ValueOf(*p)
		for i := range fields.NumField() {
			if name := fields.Type().Field(i).Name; name != "TimeNS" && name != "MonoNS" {
				n.add(file, name, fmt.Sprint(fields.Field(i))).local = slices.Contains(local, name)
			}
		}
		if data, err = r.ReadInto(p, data); err != nil {
			t.Fatal(err)
		}
		n.add(file, "values", fmt.Sprintf("%s of execution %d: %.6x", p.Name, p.Exec, sha256.Sum256(data))).local = true
	}
	for e := range r.Executions() {
		e.TimeNS, e.MonoNS = 0, 0
		n.add(file, "executions", fmt.Sprintf("%+v", *e))
	}
	for _, loss := range r.Info().Losses {
		n.add(file, "losses", fmt.Sprintf("%+v", loss))
	}
	for _, gap := range r.Info().Gaps {
		n.add(file, "gaps", fmt.Sprintf("%+v", gap))
	}
	if err := r.Err(); err != nil || len(r.Info().Damage) > 0 {
		t.Errorf("%s: %v, %v", path, err, r.Info().Damage)
	}
}

// events adds a resource log: the events of each type, and the order of types.
func (n normalised) events(t *testing.T, file string, text []byte) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var event map[string]any
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%s: %v: %s", file, err, line)
		}
		kind := fmt.Sprint(event["event"])
		n.add(file, "order", kind)
		n.add(file, kind, compact(scrub(event))).local = kind == "sampling_state" || kind == "expert_routing"
	}
}

// document adds a JSON document: its top-level keys, and of a list each element.
func (n normalised) document(t *testing.T, file string, text []byte) {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if filepath.Base(file) == "manifest.json" {
		segmented := false // how many segments there are depends on when their sizes were read
		for _, f := range all["files"].([]any) {
			name := fmt.Sprint(f.(map[string]any)["name"])
			if strings.HasPrefix(name, "seg-") {
				if segmented {
					continue
				}
				name, segmented = "a segment", true
			}
			n.add(file, "files", name)
		}
		return
	}
	for key, value := range scrub(all).(map[string]any) {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, element := range list {
			for _, size := range []string{"bytes_stored", "saturated", "underflow"} {
				if m, ok := element.(map[string]any); ok && m[size] != nil {
					n.add(file, key+"."+size, fmt.Sprint(m[size])).local = true
					delete(m, size)
				}
			}
			n.add(file, key, compact(element))
		}
	}
}

// tables prints the Parquet files of the folders that it is given, as JSON: file, column, values. It leaves out the
// files that the process has mapped, which vary in number, and numbers the other regions without them.
const tables = `
import sys, json, glob, os, pyarrow as pa, pyarrow.parquet as pq
def column(c):
    if pa.types.is_timestamp(c.type) or pa.types.is_duration(c.type): c = c.cast("int64")
    return ["" if v is None else str(v) for v in c.to_pylist()]
def table(path):
    t = pq.read_table(path)
    regions = os.path.join(os.path.dirname(path), "region_map.parquet")
    if path == regions: t = t.filter(t["buffer_id"].is_valid())
    rows = {n: column(t[n]) for n in t.column_names}
    if "region_id" in rows and os.path.exists(regions):
        m = pq.read_table(regions, columns=["region_id", "buffer_id"])
        number = {v: i for i, v in enumerate(column(m.filter(m["buffer_id"].is_valid())["region_id"]))}
        rows["region_id"] = [str(number.get(v, "")) for v in rows["region_id"]]
    return {"rows": rows, "schema": [f"{f.name}: {f.type}" for f in t.schema],
        "metadata": {k.decode(): v.decode() for k, v in t.schema.metadata.items() if k != b"pandas"}}
print(json.dumps({folder: {os.path.relpath(path, folder): table(path)
    for path in glob.glob(folder + "/**/*.parquet", recursive=True)} for folder in sys.argv[1:]}))
`

// normaliseTables adds the tables of each run directory, which pyarrow reads.
func normaliseTables(t *testing.T, all map[string]normalised) {
	t.Helper()
	python := testenv.NeedPython(t, "pyarrow.parquet")
	out, err := exec.Command(python, append([]string{"-c", tables}, slices.Sorted(maps.Keys(all))...)...).Output()
	if err != nil {
		t.Fatalf("pyarrow: %v", err)
	}
	var folders map[string]map[string]struct {
		Rows     map[string][]string
		Schema   []string
		Metadata map[string]string
	}
	if err := json.Unmarshal(out, &folders); err != nil {
		t.Fatal(err)
	}
	for dir, files := range folders {
		for file, table := range files {
			n := all[dir]
			n.add(file, "schema", table.Schema...)
			for key, text := range table.Metadata {
				var value any
				if json.Unmarshal([]byte(text), &value) == nil {
					text = compact(scrub(value))
				}
				n.add(file, "metadata "+key, text)
			}
			for column, values := range table.Rows {
				if differs.MatchString(column) {
					for i := range values {
						values[i] = values[i][:min(len(values[i]), 1)]
						if values[i] != "" {
							values[i] = masked
						}
					}
				}
				n.add(file, column, values...)
			}
		}
	}
}
