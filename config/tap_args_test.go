package config

import (
	"slices"
	"strings"
	"testing"
)

func TestSplitTapArgs(t *testing.T) {
	for _, c := range []struct{ name, line, tap, rest string }{
		{"nothing", "", "", ""},
		{"none of ours", "-m x -p y --temp 0", "", "-m x -p y --temp 0"},
		{"joined", "-m x --tap-codec=lz4 -n 3", "--tap-codec=lz4", "-m x -n 3"},
		{"apart", "-m x --tap-codec lz4 -n 3", "--tap-codec=lz4", "-m x -n 3"},
		{"one dash is the program's", "-tap-codec lz4", "", "-tap-codec lz4"},
		{"another prefix is the program's", "--tape x --tap", "", "--tape x --tap"},
		{"behind --", "--tap-layers 1 -- prog --tap-codec zstd", "--tap-layers=1", "-- prog --tap-codec zstd"},
		{"equals sign in the value", "--tap-out=a=b", "--tap-out=a=b", ""},
		{"dash in a joined value", "--tap-out=-x", "--tap-out=-x", ""},
		{"order and repeats stay", "--tap-seed 1 a --tap-seed 2 b", "--tap-seed=1 --tap-seed=2", "a b"},
		{"our flag as the program's value is ours", "-p --tap-attention exact", "--tap-attention=exact", "-p"},
	} {
		tap, rest, err := SplitTapArgs(strings.Fields(c.line))
		if err != nil || strings.Join(tap, " ") != c.tap || strings.Join(rest, " ") != c.rest {
			t.Errorf("%s: %q %q %v", c.name, tap, rest, err)
		}
	}
}

func TestSplitTapArgsLeavesPrompts(t *testing.T) {
	args := []string{"-p", "--tap-dance is a dance", "--tap-é", "", "-"}
	tap, rest, err := SplitTapArgs(args)
	if err != nil || len(tap) != 0 || !slices.Equal(rest, args) {
		t.Errorf("%q %q %v", tap, rest, err)
	}
}

func TestLastFlagWins(t *testing.T) {
	if got := mustResolve(t, world{}, "--tap-preset=max", "--tap-codec=none", "--tap-codec",
		"zstd"); got.Codec != "zstd" {
		t.Errorf("codec %s", got.Codec)
	}
}

// FuzzSplitTapArgs checks that no argument is lost, invented or reordered, and that the tap's part reads back as
// itself.
func FuzzSplitTapArgs(f *testing.F) {
	for _, seed := range []string{
		"-m\nx\n--tap-codec\nlz4", "--tap-attention\nexact\n--\n--tap-x", "--tap-out=\n--tap-", "-p\n--tap-dance on",
		"--tap-seed\n--tap-seed",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		tap, rest, err := SplitTapArgs(args)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("an error of several lines: %q", err)
			}
			return
		}
		again, none, err := SplitTapArgs(tap)
		if err != nil || len(none) != 0 || !slices.Equal(again, tap) {
			t.Fatalf("%q reads back as %q, %q, %v", tap, again, none, err)
		}
		next := 0
		for _, arg := range args {
			if next < len(rest) && rest[next] == arg {
				next++
			}
		}
		if next != len(rest) {
			t.Fatalf("%q is not part of %q in order", rest, args)
		}
		if len(rest)+len(tap) > len(args) || len(rest)+2*len(tap) < len(args) {
			t.Fatalf("%d arguments became %d and %d", len(args), len(tap), len(rest))
		}
	})
}

// FuzzLoadFile checks that no file panics the loader, that errors are one line and name the file, and that settings
// are known.
func FuzzLoadFile(f *testing.F) {
	for _, seed := range []string{
		"tap: {preset: max}", "tap:\n  tensors: [l_out, 'ffn_*']\n  tokens: 1:20\n", "tap:\n  out: |\n    x\n",
		"a: &b c\n<<: *b\n", "- 1", "\x00", "tap:\n- ? a\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := loadFile("f", strings.NewReader(text))
		if err != nil && (strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "f")) {
			t.Fatalf("error %q", err)
		}
		for name := range settings {
			if findOption(name) == nil {
				t.Fatalf("setting %q is not in the table", name)
			}
		}
	})
}

func TestFileForms(t *testing.T) {
	const file = `# a comment
tap:
  granularity: sampled_slices
  sampling_rate: 0.25
  layers: 0-3,7        # plain
  tensors: [l_out, "ffn_*"]
  tokens: 1:20
  memory: 64M
  seed: 18446744073709551615
  out: |
    some where
`
	got := mustResolve(t, world{files: map[string]string{"f": file}}, "--tap-config", "f")
	if got.SamplingRate != 0.25 || got.Layers.String() != "0-3,7" ||
		!slices.Equal(got.Tensors, []string{"l_out", "ffn_*"}) ||
		got.Tokens.String() != "1:20" || got.Memory != 64*MiB || got.Seed != 1<<64-1 || got.Out != "some where" {
		t.Errorf("got %+v", got)
	}
	for _, layers := range []string{"[0, 2-3]", "\n  - 0\n  - 2-3\n", "'0,2-3'", "\"0,2-3\""} {
		got := mustResolve(t, world{files: map[string]string{"f": "tap:\n  layers: " + layers}}, "--tap-config=f")
		if got.Layers.String() != "0,2-3" {
			t.Errorf("layers: %s read as %v", layers, got.Layers)
		}
	}
	if got := mustResolve(t, world{files: map[string]string{"f": "tap: {attention: true}"}},
		"--tap-config=f"); got.Attention.String() != "keep" {
		t.Errorf("attention: true read as %v", got.Attention)
	}
}
