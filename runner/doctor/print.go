package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
)

// Widths of the screen, in columns.
const (
	screenWidth = 116
	statusWidth = 9
	nameWidth   = 20
	indent      = 2 + statusWidth + nameWidth
)

// colours are the SGR parameters of statuses.
var colours = map[Status]string{OK: "32", Limited: "33", Missing: "31", Unknown: "36"}

// Print writes facts below the headings of their topics, and last whether llamatap can record here. Colour marks
// statuses.
func Print(out io.Writer, facts []Fact, colour bool) error {
	var b strings.Builder
	topic := ""
	for _, f := range facts {
		if f.Topic != topic {
			if topic != "" {
				b.WriteByte('\n')
			}
			topic = f.Topic
			b.WriteString(topic + "\n")
		}
		printFact(&b, f, colour)
	}
	b.WriteString("\n" + verdict(facts) + "\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// verdict says in a sentence whether llamatap can record here, and counts what is not ok.
func verdict(facts []Fact) string {
	count := map[Status]int{}
	var unknown []string
	for _, f := range facts {
		count[f.Status]++
		if f.Status == Unknown && f.essential() {
			unknown = append(unknown, f.Topic+" "+f.Name)
		}
	}
	sum := fmt.Sprintf("%d ok, %d limited, %d missing, %d unknown", count[OK], count[Limited], count[Missing],
		count[Unknown])
	var lack []string
	for _, f := range Lacking(facts) {
		lack = append(lack, f.Topic+" "+f.Name)
	}
	switch {
	case len(lack) > 0:
		return "llamatap cannot record here without: " + strings.Join(lack, ", ") + " (" + sum + ")"
	case len(unknown) > 0:
		return "llamatap can record here, if what is unknown is there: " + strings.Join(unknown, ", ") + " (" + sum +
			")"
	}
	return "llamatap can record here (" + sum + ")"
}

// printFact writes one fact: a line, and where it lacks, what that costs and how to get it.
func printFact(b *strings.Builder, f Fact, colour bool) {
	status := fmt.Sprintf("%-*s", statusWidth, f.Status)
	if colour {
		status = "\x1b[" + colours[f.Status] + "m" + status + "\x1b[0m"
	}
	fmt.Fprintf(b, "  %s%-*s", status, nameWidth, present.Line(f.Name))
	wrap(b, f.Value, indent)
	if f.Costs != "" {
		fmt.Fprintf(b, "%*scosts:  ", indent, "")
		wrap(b, f.Costs, indent+8)
	}
	if f.Remedy != "" {
		fmt.Fprintf(b, "%*sremedy: ", indent, "")
		wrap(b, f.Remedy, indent+8)
	}
}

// wrap writes text, escaped because colours go straight to the terminal, from column on, broken between words at
// the edge of the screen.
func wrap(b *strings.Builder, text string, column int) {
	b.WriteString(present.Wrap(present.Quote(text), column, screenWidth) + "\n")
}
