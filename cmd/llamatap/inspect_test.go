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

// TestReadingCommandErrors holds the messages for wrong use of inspect, cat and verify, with their exit status.
func TestReadingCommandErrors(t *testing.T) {
	stream, out := foreignStream(t), t.TempDir()
	t.Setenv("LLAMATAP_OUT", out)
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"inspect", 2, "there is no run below " + out + ": give a run directory"},
		{"verify a b", 2, "2 arguments instead of 1; 'llamatap verify --help' shows how"},
		{"memory -mmp x", 2, "unknown flag -mmp; "},
		{"memory --jsn x", 2, "unknown flag --jsn: did you mean --json?"},
		{"memory -jsn x", 2, "unknown flag -jsn: did you mean -json?"},
		{"inspect --what x", 2, "unknown flag --what; 'llamatap inspect --help' lists the flags"},
		{"inspect x --layer two", 2, `--layer "two": give a layer number from 0, or none for what belongs to no layer`},
		{"inspect x --by token", 2, "--by token groups statistics: add --stats"},
		{"inspect x --stats --by week", 2, `--by "week": use tensor, packet, token`},
		{"inspect x --tensor [a", 2, `tensor glob "[a": a [ is not closed or a \ ends it; use *, ? and [a-z]`},
		{"inspect x --attention --layer 1", 2, "--attention shows one head of one layer: give --layer N and --head H"},
		{"inspect x --attention --layer 1 --head a", 2, `--head "a": give the number of a head, from 0`},
		{"inspect x --attention --layer 1 --head 0 --json --format npy", 2, "json was asked for already: drop one"},
		{"inspect " + stream + " --attention --layer 1 --head 0", 1,
			stream + ": no attention was captured: record with --tap-attention"},
		{"inspect /no/such/run", 1,
			"/no/such/run: there is no such file or folder: give a run directory or a .stream file"},
		{"verify /no/such/run", 1, "/no/such/run: there is no such file or folder: give a run directory"},
		{"cat x", 2, `no tensor: give its name with --tensor; 'llamatap inspect x --tensor "*"' lists them`},
		{"cat x --tensor l --format csv", 2, `--format "csv": use text, npy, json`},
		{"cat x --tensor l --token 3:1", 2,
			`token "3:1": give a token index from 0, or A:B with B above A (B itself is left out)`},
		{"cat x --tensor l --ctx -1", 2, `--ctx "-1": give the number of a context, from 0`},
		{"cat " + stream + " --tensor layer2", 1, stream + `: no tensor "layer2": there are layer1`},
		{"inspect " + stream + " --tensor layer2", 1, stream + `: no tensor "layer2": there are layer1`},
		{"export x", 2, "no form: give one with --to, of [npy safetensors parquet arrow strap dataset]"},
		{"export x --to csv", 2, `--to "csv": use one of [npy safetensors parquet arrow strap dataset]`},
		{"export x --to npy --layer two", 2,
			`--layer "two": layer list "two": "two" is neither a layer nor a range such as 0-3`},
		{"export x --to npy --component mpl", 2, `--component "mpl": unknown component "mpl": use one of [`},
		{"export x --to npy --phase now", 2, `--phase "now": unknown phase "now"`},
		{"export x --to npy --token 1,3:1", 2,
			`token "3:1": give a token index from 0, or A:B with B above A (B itself is left out)`},
		{"export x --to npy --seq a", 2, `--seq "a": give numbers of sequences, from 0`},
		{"export x --to strap --codec q", 2, `--codec "q": STRAP-LLM reads none, lz4 and zstd`},
		{"export x --to dataset --shard-mb -1", 2, "--shard-mb -1: give a size in MB, from 1"},
		{"export " + stream + " --to npy", 1, "a stream outside of a run directory: say with -o where the export goes"},
		{"export " + stream + " --to npy --tensor layer2 -o " + filepath.Join(t.TempDir(), "x"), 1,
			stream + ": nothing is chosen; there are layers none, components other"},
		{"cat " + stream + " --tensor layer1 -o /no/such/folder/x", 1, "write /no/such/folder/x: "},
		{"kv", 2, "there is no run below " + out + ": give a run directory"},
		{"kv x --by week", 2, `--by "week": use sequence, layer, time`},
		{"kv x --format xml", 2, `--format "xml": use text, json, csv`},
		{"kv x --width -3", 2, "--width -3: use 1 to 10000 columns, or 0 for those of the terminal"},
		{"kv /no/such/run", 1,
			"/no/such/run: there is no such file or folder: give a run directory or a .parquet file"},
		{"memory", 2, "there is no run below " + out + ": give a run directory"},
		{"memory x --by week", 2, `--by "week": use type, region, step, time, symbol, data_symbol, process, phase`},
		{"memory x --format xml", 2, `--format "xml": use text, json, csv`},
		{"memory x --top -3", 2, "--top -3: use 0 or more regions"},
		{"memory x --windows 1ms,now", 2,
			`--windows "1ms,now": "now" is not a length of time: use such as 1ms,100ms,1s`},
		{"memory x --windows -1s", 2, `--windows "-1s": "-1s" is not a length of time: use such as 1ms,100ms,1s`},
		{"memory x --windows " + strings.Repeat("1s,", 16) + "2s", 2, "17 windows, at most 16 can be measured at once"},
		{"memory /no/such/run", 1, "/no/such/run: there is no such folder: give a run directory"},
		{"memory record", 2, "give a program after --, or a process with -p, one of the two"},
		{"memory record --", 2, "no program after --: write llamatap memory record -- PROGRAM ARGUMENTS"},
		{"memory record true", 2, `unexpected argument "true": put a program after --`},
		{"memory record -p 1 -- true", 2, "give a program after --, or a process with -p, one of the two"},
		{"memory record -p -4", 2, "-p -4 is not a process id"},
		{"memory record --samples perv -- true", 2,
			`--samples: unknown collector of samples "perv": use perf, faults, pages`},
		{"memory record --samples faults,faults -- true", 2,
			`--samples: collector of samples "faults" is named twice: name it once`},
		{"memory record --samples faults --period 5 -- true", 2,
			"--period 5 is that of perf, and --samples does not name it: write --samples perf:faults, or drop it"},
		{"memory record --ring 3M -- true", 2,
			`--ring "3M": samples ring "3M": give a power of two from 8K to 1G, such as 1M, or 0`},
		{"memory record -d -1 -- true", 2, "-d -1: give seconds from 0 to 1000000"},
		{"memory record --interval 0.01 -- true", 2, "--interval 0.01: give seconds from 0.05 to 86400"},
		{"memory import", 2,
			"no file: give texts of perf script, or perf.data; 'llamatap memory import --help' shows how"},
		{"memory mark", 2, "no name: give one"},
		{"memory mark a b", 2, "2 arguments instead of 1"},
		{"memory mark a\tb", 2, `invalid marker: name "a\tb": use 1 to 64 bytes of printable text, such as prefill`},
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
