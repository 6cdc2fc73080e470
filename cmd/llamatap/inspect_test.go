package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseTokens(t *testing.T) {
	for text, want := range map[string][2]int64{
		"": {0, 0}, "0": {0, 1}, "7": {7, 8}, "2:5": {2, 5}, ":5": {0, 5}, "2:": {2, -1}, ":": {0, -1},
	} {
		if first, end, err := parseTokens(text); err != nil || first != want[0] || end != want[1] {
			t.Errorf("%q: %d, %d, %v", text, first, end, err)
		}
	}
	for _, text := range []string{"x", "-1", "5:5", "5:2", "1:x", "-1:3", "1:2:3"} {
		if first, end, err := parseTokens(text); err == nil {
			t.Errorf("%q was read as %d, %d", text, first, end)
		}
	}
}

// foreignStream writes a stream as STRAP-LLM does: layer1 = 1, -2, 0.5.
func foreignStream(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "gen.stream")
	if err := os.WriteFile(name, []byte("\x00\x06\x00\x00\x00\x06layer1\x00\x3c\x00\xc0\x00\x38"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestReadingCommandErrors: wrong use of the commands that read ends with the documented exit status, and the message
// names what is at fault and what to use instead.
func TestReadingCommandErrors(t *testing.T) {
	stream, out := foreignStream(t), t.TempDir()
	t.Setenv("LLAMATAP_OUT", out)
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"inspect", 2, out},
		{"verify a b", 2, "2 | 1 | llamatap verify --help"},
		{"memory -mmp x", 2, "-mmp"},
		{"memory --jsn x", 2, "--jsn | --json"},
		{"memory -jsn x", 2, "-jsn | -json"},
		{"inspect --what x", 2, "--what | llamatap inspect --help"},
		{"inspect x --layer two", 2, `--layer "two" | none`},
		{"inspect x --by token", 2, "--by token | --stats"},
		{"inspect x --stats --by week", 2, `--by "week" | tensor, packet, token`},
		{"inspect x --tensor [a", 2, `"[a" | [a-z]`},
		{"inspect x --attention --layer 1", 2, "--attention | --layer | --head"},
		{"inspect x --attention --layer 1 --head a", 2, `--head "a"`},
		{"inspect x --attention --layer 1 --head 0 --json --format npy", 2, "json"},
		{"inspect " + stream + " --attention --layer 1 --head 0", 1, stream + " | --tap-attention"},
		{"causal", 2, "--clean | --pairs"},
		{"causal --corrupt a", 2, "--corrupt | --clean"},
		{"causal --clean a --points resid_pots", 2, "resid_pots | resid_post"},
		{"causal --clean a --tokens 5-3", 2, "5-3 | such as 3-5"},
		{"causal --clean a --do project", 2, "--vector | llamatap vector"},
		{"causal --clean a --graph --together tokens", 2, "--together tokens"},
		{"causal --clean a --graph --format csv", 2, "--graph | --format json"},
		{"causal --clean a --do zero --from " + stream, 2, "--from | zero"},
		{"causal --clean a --pairs /no/such.jsonl", 1, "/no/such.jsonl | JSON lines"},
		{"causal --clean a -m /no/such.gguf", 1, "/no/such.gguf | no such file"},
		{"inspect /no/such/run", 1, "/no/such/run | .stream"},
		{"verify /no/such/run", 1, "/no/such/run"},
		{"analyze", 2, out},
		{"analyze x --by week", 2, `--by "week" | tensor | lens`},
		{"analyze x --by token --json", 2, "--by token | csv"},
		{"analyze x --metric size", 2, `--metric "size" | l2_norm`},
		{"analyze x --min-correlation 2", 2, `--min-correlation "2" | 0 | 1`},
		{"analyze x --top -1", 2, "--top -1 | 0"},
		{"analyze x --lens 65", 2, "--lens 65 | 64"},
		{"analyze x --tensor [a", 2, `"[a" | [a-z]`},
		{"analyze x --plot a.bmp", 2, `"bmp" | png`},
		{"analyze /no/such/run", 1, "/no/such/run | .stream"},
		{"analyze " + stream, 1, stream + " | index | run directory"},
		{"cat x", 2, "--tensor | llamatap inspect x"},
		{"cat x --tensor l --format csv", 2, `--format "csv" | text, npy, json`},
		{"cat x --tensor l --token 3:1", 2, `"3:1" | A:B`},
		{"cat x --tensor l --ctx -1", 2, `--ctx "-1"`},
		{"cat " + stream + " --tensor layer2", 1, stream + ` | "layer2" | layer1`},
		{"inspect " + stream + " --tensor layer2", 1, stream + ` | "layer2" | layer1`},
		{"export x", 2, "--to | npy, safetensors, parquet, arrow, strap, dataset"},
		{"export x --to csv", 2, `--to "csv" | npy, safetensors, parquet, arrow, strap, dataset`},
		{"export x --to npy --layer two", 2, `--layer "two" | 0-3`},
		{"export x --to npy --component mpl", 2, `--component "mpl" | mlp`},
		{"export x --to npy --phase now", 2, `--phase "now"`},
		{"export x --to npy --token 1,3:1", 2, `"3:1" | A:B`},
		{"export x --to npy --seq a", 2, `--seq "a"`},
		{"export x --to strap --codec q", 2, `--codec "q" | none, lz4 and zstd`},
		{"export x --to dataset --shard-mb -1", 2, "--shard-mb -1 | MB"},
		{"export " + stream + " --to npy", 1, "-o"},
		{"export " + stream + " --to npy --tensor layer2 -o " + filepath.Join(t.TempDir(), "x"), 1,
			stream + " | components other"},
		{"cat " + stream + " --tensor layer1 -o /no/such/folder/x", 1, "/no/such/folder/x"},
		{"kv", 2, out},
		{"kv x --by week", 2, `--by "week" | sequence, layer, time`},
		{"kv x --format xml", 2, `--format "xml" | text, json, csv`},
		{"kv x --width -3", 2, "--width -3 | 1 | 10000 | 0"},
		{"kv /no/such/run", 1, "/no/such/run | .parquet"},
		{"memory", 2, out},
		{"memory x --by week", 2, `--by "week" | type, region, step, time, symbol, data_symbol, process, phase`},
		{"memory x --format xml", 2, `--format "xml" | text, json, csv`},
		{"memory x --top -3", 2, "--top -3 | 0"},
		{"memory x --windows 1ms,now", 2, `--windows "1ms,now" | "now" | 1ms,100ms,1s`},
		{"memory x --windows -1s", 2, `--windows "-1s" | 1ms,100ms,1s`},
		{"memory x --windows " + strings.Repeat("1s,", 16) + "2s", 2, "17 windows | 16"},
		{"memory /no/such/run", 1, "/no/such/run"},
		{"memory record", 2, "-- | -p"},
		{"memory record --", 2, "-- | llamatap memory record -- PROGRAM"},
		{"memory record true", 2, `"true" | --`},
		{"memory record -p 1 -- true", 2, "-- | -p"},
		{"memory record -p -4", 2, "-p -4"},
		{"memory record --samples perv -- true", 2, `--samples | "perv" | perf, faults, pages`},
		{"memory record --samples faults,faults -- true", 2, `--samples | "faults" | twice`},
		{"memory record --samples faults --period 5 -- true", 2, "--period 5 | --samples | perf:faults"},
		{"memory record --ring 3M -- true", 2, `--ring "3M" | 8K | 1G | 0`},
		{"memory record -d -1 -- true", 2, "-d -1 | 0 | 1000000"},
		{"memory record --interval 0.01 -- true", 2, "--interval 0.01 | 0.05 | 86400"},
		{"memory import", 2, "perf.data | llamatap memory import --help"},
		{"memory mark", 2, "name"},
		{"memory mark a b", 2, "2 | 1"},
		{"memory mark a\tb", 2, `"a\tb" | 64`},
	} {
		refused(t, c.line, c.code, c.want)
	}
}

func TestCatWritesFiles(t *testing.T) {
	stream := foreignStream(t)
	out := filepath.Join(t.TempDir(), "x.npy")
	if err := call("cat", stream, "--tensor", "layer1", "--format", "npy", "-o", out); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil || !strings.HasPrefix(string(data), "\x93NUMPY") ||
		!strings.HasSuffix(string(data), "\x00\x3c\x00\xc0\x00\x38") {
		t.Errorf("%q %v", data, err)
	}
	if err := call("cat", "-o", "/dev/null", "--tensor", "layer1", stream); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode().IsRegular() {
		t.Errorf("/dev/null was replaced by a file: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
