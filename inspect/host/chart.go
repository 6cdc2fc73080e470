package host

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// ChartTypes are the kinds of charts, in the order in which they are drawn.
var ChartTypes = []string{"hist", "percentiles", "heatmap", "queue", "requests", "qdepth_iops", "importance"}

// ParseChartTypes reads a list of kinds with commas; "all" and the empty list are all of them.
func ParseChartTypes(list string) ([]string, error) {
	var types []string
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.ToLower(strings.TrimSpace(name)); {
		case name == "":
		case name == "all":
			return ChartTypes, nil
		case !slices.Contains(ChartTypes, name):
			return nil, fmt.Errorf("unknown chart type %.20q: use all, or some of %s", name,
				strings.Join(ChartTypes, ","))
		case !slices.Contains(types, name):
			types = append(types, name)
		}
	}
	if types == nil {
		return ChartTypes, nil
	}
	return types, nil
}

// DrawCharts draws the charts of these kinds that the report has figures for, in these forms ([sheet.Forms]), into a
// folder that it makes where there is none, and returns the paths of the files. A file is there when it is whole,
// and one of an earlier call that there is nothing to draw for now is removed.
func DrawCharts(r *Report, dir string, types, forms []string) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of charts: %w", err)
	}
	draw := func(name string, picture *sheet.Picture) {
		if err == nil {
			var saved []string
			saved, err = picture.SaveForms(filepath.Join(dir, name), forms)
			paths = append(paths, saved...)
		}
	}
	for _, d := range r.Devices {
		base := fmt.Sprintf("%s-id%d_", slug(d.Name), d.ID)
		for _, kind := range types {
			if of, ok := ofDevice[kind]; ok {
				draw(base+of.name, of.draw(r, d))
			}
		}
	}
	if slices.Contains(types, "importance") {
		draw("importance_correlations", correlations(r))
		draw("importance_offcpu_top_pids", topOffCPU(r))
		draw("importance_page_faults_top_pids", top(r.Faults, "most page faults", "page faults", sheet.Orange, 1, ""))
		draw("importance_trends", trends(r))
	}
	return paths, err
}

// ofDevice are the charts of each device: their names, and what draws them; nil where there is nothing to draw.
var ofDevice = map[string]struct {
	name string
	draw func(*Report, *Device) *sheet.Picture
}{
	"hist":        {"latency_hist", histogram},
	"percentiles": {"latency_percentiles", percentiles},
	"heatmap":     {"latency_heatmap", heatMap},
	"queue":       {"queue_depth", queueDepth},
	"requests":    {"requests", requests},
	"qdepth_iops": {"qdepth_iops", queueAndRequests},
}

var notSlug = regexp.MustCompile(`[^a-z0-9]+`)

// slug is a device's name as written in file names.
func slug(name string) string {
	text := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if text == "" {
		return "device"
	}
	return text[:min(len(text), 100)]
}
