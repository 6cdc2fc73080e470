package intervene

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/present"
)

// label names a node for people.
func (r *Report) label(n *Node) string {
	if n.Site == nil {
		if r.answer() == "" {
			return r.Metric
		}
		return fmt.Sprintf("%s of %q", r.Metric, r.Answer)
	}
	s := *n.Site
	name := s.ref().String()
	if s.Head != AllHeads {
		name += fmt.Sprintf(" head %d", s.Head)
	}
	return fmt.Sprintf("%s at %d %q", name, s.Token, r.Tokens[s.Token])
}

// WriteDOT writes the graph for Graphviz. Like the other formats of graphs it needs Sweep.Graph.
func (r *Report) WriteDOT(out io.Writer) error {
	t := &present.Text{W: out}
	t.Line("digraph causal {")
	t.Line("  rankdir=BT; node [shape=box, fontname=\"sans-serif\"];")
	for i := range r.Graph.Nodes {
		n := &r.Graph.Nodes[i]
		effect := ""
		if n.Effect != nil {
			effect = "\n" + n.Effect.String()
		}
		t.Line("  %s [label=%s];", dotText(n.ID), dotText(r.label(n)+effect))
	}
	largest := r.Graph.largest()
	for _, l := range r.Graph.Links {
		t.Line("  %s -> %s [label=%s, color=%q, penwidth=%.2f];", dotText(l.Source), dotText(l.Target),
			dotText(fmt.Sprintf("%.3g", l.Weight.Mean)), colour(l.Weight.Mean), thickness(l.Weight.Mean, largest))
	}
	t.Line("}")
	return t.Err
}

// dotText quotes a text for DOT.
func dotText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// largest is the largest weight of a link, without its sign.
func (g *Graph) largest() (most float64) {
	for i := range g.Links {
		most = max(most, g.Links[i].Weight.Mean, -g.Links[i].Weight.Mean)
	}
	return most
}

// colour is blue for what raises the metric, red for what lowers it.
func colour(weight float64) string {
	if weight < 0 {
		return "#b2182b"
	}
	return "#2166ac"
}

func thickness(weight, largest float64) float64 {
	if largest == 0 {
		return 1
	}
	return 1 + 4*max(weight, -weight)/largest
}

// graphML is a document of GraphML.
type graphML struct {
	XMLName xml.Name     `xml:"http://graphml.graphdrawing.org/xmlns graphml"`
	Keys    []graphMLKey `xml:"key"`
	Graph   struct {
		ID      string        `xml:"id,attr"`
		Default string        `xml:"edgedefault,attr"`
		Nodes   []graphMLItem `xml:"node"`
		Edges   []graphMLItem `xml:"edge"`
	} `xml:"graph"`
}

type graphMLKey struct {
	ID   string `xml:"id,attr"`
	For  string `xml:"for,attr"`
	Name string `xml:"attr.name,attr"`
	Type string `xml:"attr.type,attr"`
}

type graphMLItem struct {
	ID     string        `xml:"id,attr,omitempty"`
	Source string        `xml:"source,attr,omitempty"`
	Target string        `xml:"target,attr,omitempty"`
	Data   []graphMLData `xml:"data"`
}

type graphMLData struct {
	Key   string `xml:"key,attr"`
	Value string `xml:",chardata"`
}

// WriteGraphML writes the graph as GraphML.
func (r *Report) WriteGraphML(out io.Writer) error {
	var doc graphML
	doc.Graph.ID, doc.Graph.Default = "causal", "directed"
	for _, k := range [][3]string{{"node", "label", "string"}, {"node", "point", "string"}, {"node", "layer", "int"},
		{"node", "token", "int"}, {"node", "head", "int"}, {"node", "effect", "double"}, {"edge", "weight", "double"},
		{"edge", "share", "double"}} {
		doc.Keys = append(doc.Keys, graphMLKey{k[1], k[0], k[1], k[2]})
	}
	real := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for i := range r.Graph.Nodes {
		n := &r.Graph.Nodes[i]
		item := graphMLItem{ID: n.ID, Data: []graphMLData{{"label", r.label(n)}}}
		if s := n.Site; s != nil {
			item.Data = append(item.Data, graphMLData{"point", s.Point.String()}, graphMLData{"layer",
				strconv.Itoa(s.Layer)}, graphMLData{"token", strconv.Itoa(s.Token)}, graphMLData{"head",
				strconv.Itoa(s.Head)}, graphMLData{"effect", real(n.Effect.Mean)})
		}
		doc.Graph.Nodes = append(doc.Graph.Nodes, item)
	}
	for i := range r.Graph.Links {
		l := &r.Graph.Links[i]
		item := graphMLItem{Source: l.Source, Target: l.Target, Data: []graphMLData{{"weight", real(l.Weight.Mean)}}}
		if l.Share != nil {
			item.Data = append(item.Data, graphMLData{"share", real(*l.Share)})
		}
		doc.Graph.Edges = append(doc.Graph.Edges, item)
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(out)
	e.Indent("", "  ")
	return e.Encode(&doc)
}

// WriteNeuronpedia writes the graph in Neuronpedia's schema of attribution graphs, graph-schema.json.
func (r *Report) WriteNeuronpedia(out io.Writer) error {
	type object = map[string]any
	ids := map[string]string{}
	var nodes, links []object
	for i := range r.Graph.Nodes {
		n := &r.Graph.Nodes[i]
		layer, feature, token, kind := strconv.Itoa(r.Layers), 0, len(r.Tokens)-1, "logit"
		if r.AnswerID != nil {
			feature = int(*r.AnswerID)
		}
		if s := n.Site; s != nil {
			layer, token, kind = strconv.Itoa(s.Layer), s.Token, s.Point.String()
			feature = int(s.Point)*1000 + s.Head + 1 // a number for each point and head
			if s.Point == ggmlhooks.PointEmbeddings {
				layer, feature, kind = "E", int(r.TokenIDs[token]), "embedding"
			}
		}
		ids[n.ID] = fmt.Sprintf("%s_%d_%d", layer, feature, token)
		node := object{"node_id": ids[n.ID], "feature": feature, "layer": layer, "ctx_idx": token, "feature_type": kind,
			"jsNodeId": fmt.Sprintf("%s_%d-0", layer, feature), "clerp": r.label(n)}
		if n.Effect != nil {
			node["activation"] = n.Effect.Mean
		}
		nodes = append(nodes, node)
	}
	for _, l := range r.Graph.Links {
		links = append(links, object{"source": ids[l.Source], "target": ids[l.Target], "weight": l.Weight.Mean})
	}
	about := "Links are effects of interventions on " + r.Metric + ", measured by " + r.Action
	if n := r.Base.N; n > 1 {
		about += fmt.Sprintf(": means of %d pairs of prompts, of which the first one's is shown", n)
	}
	slug := strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(r.Model+"-"+r.Action)), "-")
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(object{
		"metadata": object{"slug": slug, "scan": r.Model, "prompt_tokens": r.Tokens, "prompt": r.Prompt,
			"info": object{"generator": object{"name": "llamatap causal",
				"url": "https://github.com/llamatap/llamatap"},
				"description": about}},
		"qParams": object{"pinnedIds": []string{}, "supernodes": []any{}, "linkType": "both"},
		"nodes":   nodes, "links": append([]object{}, links...),
	})
}
