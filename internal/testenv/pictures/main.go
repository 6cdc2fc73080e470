// Command pictures draws docs/pictures from real runs: terminal sessions, a chart of what recording costs, and a figure
// of llamatap mrm. Each picture is written for light and for dark pages. 'make pictures' runs it.
//
//	go run ./internal/testenv/pictures [-o DIR] [NAME…]
package main

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// palette is the colours of a picture for one kind of page.
type palette struct {
	suffix                                  string
	page, text, muted, line, accent, second string
}

var palettes = []palette{
	{"light", "#ffffff", "#1f2328", "#656d76", "#d0d7de", "#336ba8", "#e07b27"},
	{"dark", "#0d1117", "#e6edf3", "#8d96a0", "#30363d", "#6cb6ff", "#f0a35e"},
}

// drawing makes one picture in the colours of a palette.
type drawing func(p palette) []byte

// pictures runs what each picture shows, in a folder of its own.
var pictures = map[string]func(dir string) (drawing, error){
	"session":  terminal(session),
	"report":   report,
	"dataset":  terminal(dataset),
	"kv":       terminal(cache),
	"overhead": overhead,
	"mrm":      figure,
}

func main() {
	out := flag.String("o", "docs/pictures", "`FOLDER` to write to")
	flag.Parse()
	names := flag.Args()
	if len(names) == 0 {
		for name := range pictures {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	for _, name := range names {
		if err := picture(*out, name); err != nil {
			log.Fatalf("pictures: %s: %v", name, err)
		}
	}
}

// picture runs what a picture shows and writes it for every palette.
func picture(out, name string) error {
	run := pictures[name]
	if run == nil {
		return fmt.Errorf("unknown picture: see the table in internal/testenv/pictures/main.go")
	}
	dir, err := os.MkdirTemp("", "llamatap-picture.")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	draw, err := run(dir)
	if err != nil {
		return err
	}
	for _, p := range palettes {
		drawn, form, most := draw(p), ".svg", 60<<10
		if bytes.HasPrefix(drawn, []byte("\x89PNG")) {
			form, most = ".png", 250<<10
		}
		if len(drawn) > most {
			return fmt.Errorf("%d bytes: a picture has at most %d KiB", len(drawn), most>>10)
		}
		if err := os.WriteFile(filepath.Join(out, name+"-"+p.suffix+form), drawn, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// shell runs a command line in dir with this checkout's bin in front of PATH, and returns stdout and stderr together.
func shell(dir, line string) (string, error) {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "COLUMNS=100", "LLAMATAP_OUT=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return string(out), nil
}

// A step is a command of a session. first and lines choose what is shown of its output; lines 0 runs it unseen.
type step struct {
	line         string
	first, lines int
}

const all = 1 << 20

var (
	session = []step{
		{"llamatap run -p 'func main() {' -n 60 --temp 0 -t 1 --tap-tensor 'l_out*'", 0, all},
		{"llamatap inspect", 2, all},
		{"llamatap verify", 0, all},
	}
	dataset = []step{
		{"llamatap run -p 'func main() {' -n 200 --temp 0 --ignore-eos --tap-tensor 'l_out*'", 0, 0},
		{"llamatap cat --tensor l_out-3 --token 20", 0, all},
		{"llamatap export --to dataset --tensor l_out --complete --seed 1 -o dataset", 0, all},
		{"find dataset -type f", 0, all},
	}
	cache = []step{
		{"llamatap run -p 'func main() {' -n 600 -c 256 --context-shift --temp 0 --ignore-eos --tap-kv " +
			"--tap-kv-block 8", 0, 0},
		{"llamatap kv", 0, 26},
	}
)

// columns is the width at which a line of a session is wrapped, below its text after a heading of ten columns.
const columns = 118

func wrap(line string) (wrapped []string) {
	for utf8.RuneCountInString(line) > columns {
		at := strings.LastIndex(string([]rune(line)[:columns]), " ")
		wrapped, line = append(wrapped, line[:at]), strings.Repeat(" ", 10)+line[at+1:]
	}
	return append(wrapped, line)
}

// terminal records a session: every command with what it prints.
func terminal(steps []step) func(dir string) (drawing, error) {
	return func(dir string) (drawing, error) {
		var lines []string
		for _, s := range steps {
			text, err := shell(dir, s.line)
			if err != nil {
				return nil, err
			}
			if s.lines == 0 {
				continue
			}
			shown := strings.Split(strings.Trim(strings.ReplaceAll(text, "\t", "    "), "\n"), "\n")
			cut := len(shown) > s.first+s.lines
			shown = shown[min(s.first, len(shown)):min(s.first+s.lines, len(shown))]
			if len(lines) > 0 {
				lines = append(lines, "")
			}
			lines = append(lines, "$ "+s.line)
			for _, line := range shown {
				lines = append(lines, wrap(line)...)
			}
			if cut {
				lines = append(lines, "…")
			}
		}
		return func(p palette) []byte { return screen(lines, p) }, nil
	}
}

// screen draws lines as a terminal shows them.
func screen(lines []string, p palette) []byte {
	const width, rise, margin = 8, 16, 14
	widest := 60
	for _, line := range lines {
		widest = max(widest, utf8.RuneCountInString(line))
	}
	var b bytes.Buffer
	begin(&b, widest*width+2*margin, len(lines)*rise+2*margin, p)
	fmt.Fprintf(&b,
		`<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="13" fill="%s">`+"\n", p.text)
	for i, line := range lines {
		if line == "" {
			continue
		}
		fill := ""
		if strings.HasPrefix(line, "$ ") {
			fill = fmt.Sprintf(` fill="%s" font-weight="bold"`, p.accent)
		}
		// textLength keeps columns aligned in whatever font the reader has.
		fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve" textLength="%d"%s>%s</text>`+"\n",
			margin, margin+13+i*rise, utf8.RuneCountInString(line)*width, fill, html.EscapeString(line))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// begin writes the head of a picture, and its page with rounded corners.
func begin(b *bytes.Buffer, width, height int, p palette) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d">`+"\n", width,
		height, width, height)
	fmt.Fprintf(b, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="%s" stroke="%s"/>`+"\n", width-1,
		height-1, p.page, p.line)
}

// figure runs a small experiment and takes one of its figures.
func figure(dir string) (drawing, error) {
	if _, err := shell(dir,
		"llamatap run -p 'func main() {' -n 200 --temp 0 --ignore-eos --tap-kv --tap-kv-block 8 --tap-ledger && "+
			"llamatap mrm analyze"); err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "llamatap-runs/*/*/derived/mrm/retention_cdf.svg"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("found %d figures retention_cdf.svg: %w", len(found), err)
	}
	svg, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	return func(p palette) []byte {
		if p.suffix == "light" {
			return svg
		}
		return []byte(strings.NewReplacer("#FFFFFF", p.page, "#202020", p.text, "#808080", p.muted, "#E6E6E6", p.line,
			"#EEEEEE", p.line,
			"#336BA8", p.accent, "#336AA7", p.accent, "#E07B27", p.second, "#DF7A26", p.second).Replace(string(svg)))
	}, nil
}

// report is the beginning of a run's report as Chromium shows it, of a run beside four busy processes.
func report(dir string) (drawing, error) {
	_, err := shell(dir, "for i in 1 2 3 4; do while :; do :; done & busy=\"$busy $!\"; done; trap 'kill $busy' EXIT; "+
		"llamatap run -p 'func main() {' -n 400 --temp 0 --ignore-eos --tap-resource-level DETAILED --tap-kv "+
		"--tap-host system,waits --tap-host-interval 100ms >/dev/null && llamatap report -o report.html")
	if err != nil {
		return nil, err
	}
	shots := map[string][]byte{}
	for suffix, scheme := range map[string]string{"light": "1", "dark": "0"} {
		if _, err := shell(dir, "chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars "+
			"--window-size=1080,1240 --blink-settings=preferredColorScheme="+scheme+" --screenshot="+suffix+
			".png \"file://$PWD/report.html\""); err != nil {
			return nil, err
		}
		if shots[suffix], err = os.ReadFile(filepath.Join(dir, suffix+".png")); err != nil {
			return nil, err
		}
	}
	return func(p palette) []byte { return shots[p.suffix] }, nil
}
