package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	runreport "github.com/llamatap/llamatap/inspect/report"
	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

func reportCommand() *cli.Command {
	return &cli.Command{
		Name: "report", Summary: "show what a run recorded and say why it was slow, as one HTML file", Max: 2,
		Usage: "[RUN] [--brief] [--format html|text|md|json|png|svg|pdf] [-o FILE]\nA B [--format " +
			"text|html|md|json|png|svg|pdf] [-o FILE]",
		Text: `Judges a run by what it recorded: CPU starvation, CPU quotas, page faults, memory bandwidth, small
batches, the recording itself, prompts that were processed again, a full KV cache, sampling. The verdict names the cause
with the largest share of the time, the evidence and what would remove it. docs/REPORT.md defines each share.

It prints the verdict and writes one HTML file, by default RUN.report.html in the current folder: the causes with their
shares, tokens over time, time by layer and component, roofline, KV cache, memory, activations, host, devices, losses
and how the run was recorded. A subject that was not recorded names the flag that records it. The file needs nothing
else: no network, no other file. --format text, md and json have the verdict and the causes; png, svg and pdf the charts
over time, in a file of their own. Of two runs, text is the default, and a picture has the times per token that differ.

  llamatap run -p Hello --tap-resource-level DETAILED --tap-kv --tap-host system,waits
  llamatap report
  llamatap report RUN --brief                the verdict alone
  llamatap report RUN --json | jq -r .verdict
  llamatap report A B                        what differs between two runs, the largest change first
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			brief := false
			f.Add("--brief", &brief, "only the verdict")
			form.define(f, "html", "text", "md", "json", "png", "svg", "pdf")
			return func(args []string) error {
				if len(args) == 2 {
					return compareRuns([2]string(args), brief, &form, f.Given("--format") || f.Given("--json"))
				}
				path, err := resolveRun(args...)
				isPicture := slices.Contains(sheet.Forms, form.form)
				switch {
				case err != nil:
					return err
				case brief && form.form != "html" && form.form != "text":
					return cli.Wrongf("--brief is text: drop it, or --format %s", form.form)
				case isPicture && f.Given("--output") && filepath.Ext(form.file) != "."+form.form:
					return cli.Wrongf("--format %s is written to a file: name one that ends in .%[1]s with -o",
						form.form)
				case (isPicture || form.form == "html" && !brief) && form.file == "-" && !f.Given("--output"):
					form.file = reportFile(path, form.form)
				}
				ctx, stop := untilInterrupt()
				defer stop()
				bar := present.NewProgress(progressTerminal(true), "reading")
				run, err := runreport.Read(ctx, path, bar.Of)
				bar.Done()
				if err != nil {
					return err
				}
				made := run.Report()
				if isPicture || form.form == "html" && !brief {
					return reportPage(ctx, run, made, &form)
				}
				if brief {
					return form.write(func(out io.Writer) error {
						_, err := fmt.Fprintln(out, made.Verdict)
						return err
					})
				}
				return form.writeAs(made, forms{"md": made.WriteMarkdown, "text": made.WriteText})
			}
		},
	}
}

// reportFile is where the page of a run is written by default.
func reportFile(run, form string) string {
	name := filepath.Base(run)
	if whole, err := filepath.Abs(run); err == nil {
		name = filepath.Base(whole)
	}
	return name + ".report." + form
}

// reportPage writes the page, or its charts over time as a picture, and prints the verdict where the page does not go
// to standard output.
func reportPage(ctx context.Context, run *runreport.Run, made *runreport.Report, form *reportForm) error {
	if form.form == "html" {
		err := writeTo(form.file, true, func(out io.Writer) error { return runreport.WriteHTML(ctx, out, run) })
		if err != nil {
			return err
		}
	} else if page, err := run.Page(ctx); err != nil {
		return err
	} else if err := page.Save(form.file); err != nil {
		return fmt.Errorf("%s: %w", made.Path, err)
	}
	if form.file != "-" && form.file != "" {
		present.Printf("%s\n\nreport: %s\n", made.Verdict, form.file)
	}
	return nil
}
