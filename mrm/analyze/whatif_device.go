package analyze

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/cli"
)

// Source is a publication.
type Source struct {
	Text string `yaml:"text" json:"text"`
	Year int    `yaml:"year" json:"year"`
	URL  string `yaml:"url,omitempty" json:"url,omitempty"`
	// Read says what of it whoever wrote the file has read, where that is not all.
	Read string `yaml:"read,omitempty" json:"read,omitempty"`
}

// Figure is a number that somebody published.
type Figure struct {
	Value  float64 `yaml:"value" json:"value"`
	Source string  `yaml:"source" json:"source"` // key of a Source
	Note   string  `yaml:"note,omitempty" json:"note,omitempty"`
}

// Class is a kind of memory. A figure that is nil was not published.
type Class struct {
	ID   string `yaml:"id" json:"id"`
	Name string `yaml:"name" json:"name"`
	// RetentionS is for how many seconds a cell holds what was written.
	RetentionS *Figure `yaml:"retention_s,omitempty" json:"retention_s,omitempty"`
	// Endurance is how many writes a cell bears.
	Endurance *Figure `yaml:"endurance_writes,omitempty" json:"endurance_writes,omitempty"`
	// ReadPJ and WritePJ are energies of a bit in pJ. RefreshPJ is that of refreshing one; without it a refresh is
	// a read and a write.
	ReadPJ    *Figure `yaml:"read_pj_per_bit,omitempty" json:"read_pj_per_bit,omitempty"`
	WritePJ   *Figure `yaml:"write_pj_per_bit,omitempty" json:"write_pj_per_bit,omitempty"`
	RefreshPJ *Figure `yaml:"refresh_pj_per_bit,omitempty" json:"refresh_pj_per_bit,omitempty"`
	// Refresh says what is refreshed.
	Refresh Refresh `yaml:"refresh,omitempty" json:"refresh,omitempty"`
}

// Refresh is what is refreshed.
type Refresh string

// The kinds of refresh.
const (
	// Needed: only what will be read again, when its retention ends. It is that of a memory whose retention is
	// managed, and the default.
	Needed Refresh = "needed"
	// Everything: all that was allocated, all the time, as DRAM does it.
	Everything Refresh = "all"
)

// Classes are device classes and the sources of their figures.
type Classes struct {
	Version int               `yaml:"version" json:"version"`
	Sources map[string]Source `yaml:"sources" json:"sources"`
	Classes []Class           `yaml:"classes" json:"classes"`
}

// classesVersion is the version of the file.
const classesVersion = 1

//go:embed devices.yaml
var builtin []byte

// builtinClasses are the classes that come with llamatap.
func builtinClasses() *Classes {
	c, err := parseClasses("devices.yaml", builtin, nil)
	if err != nil {
		panic(err) // a test reads the file
	}
	return c
}

// LoadClasses reads a file of device classes and adds those that come with llamatap, unless the file has one with the
// same id. "" means no file.
func LoadClasses(path string) (*Classes, error) {
	own := builtinClasses()
	if path == "" {
		return own, nil
	}
	data, err := cli.ReadFile(path, cli.MaxConfig)
	if err != nil {
		return nil, fmt.Errorf("device classes %s: %w: give a YAML file as docs/MRM_DATA.md describes it", path, err)
	}
	theirs, err := parseClasses(path, data, own.Sources)
	if err != nil {
		return nil, err
	}
	maps.Copy(own.Sources, theirs.Sources)
	for _, class := range theirs.Classes {
		if i := own.index(class.ID); i >= 0 {
			own.Classes[i] = class
		} else {
			own.Classes = append(own.Classes, class)
		}
	}
	return own, nil
}

// index finds a class by its id; -1: there is none.
func (c *Classes) index(id string) int {
	return slices.IndexFunc(c.Classes, func(have Class) bool { return have.ID == id })
}

// Pick takes some classes by their ids; none are all.
func (c *Classes) Pick(ids []string) ([]Class, error) {
	if len(ids) == 0 {
		return c.Classes, nil
	}
	var some []Class
	for _, id := range ids {
		i := c.index(id)
		if i < 0 {
			return nil, fmt.Errorf("no device class %.40q: use some of %s", id, strings.Join(c.ids(), ", "))
		}
		some = append(some, c.Classes[i])
	}
	return some, nil
}

func (c *Classes) ids() (ids []string) {
	for i := range c.Classes {
		ids = append(ids, c.Classes[i].ID)
	}
	return ids
}

// parseClasses reads a file. Its figures may name sources of known besides its own.
func parseClasses(name string, data []byte, known map[string]Source) (*Classes, error) {
	c := &Classes{}
	if err := cli.UnmarshalYAML(name, data, c); err != nil {
		return nil, fmt.Errorf("%w: write it as docs/MRM_DATA.md says", err)
	}
	if c.Version != classesVersion {
		return nil, fmt.Errorf("%s: version %d, this program reads %d: write 'version: %d' where the file is "+
			"written as docs/MRM_DATA.md says", name, c.Version, classesVersion, classesVersion)
	}
	if c.Sources == nil {
		c.Sources = map[string]Source{}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Sources)) {
		if s := c.Sources[key]; s.Text == "" || s.Year == 0 {
			return nil, fmt.Errorf("%s: source %s has no text or no year: say where its figures stand", name, key)
		}
	}
	seen := map[string]bool{}
	for i := range c.Classes {
		class := &c.Classes[i]
		if err := class.check(c.Sources, known); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if seen[class.ID] {
			return nil, fmt.Errorf("%s: class %s stands there twice: give each an id of its own", name, class.ID)
		}
		seen[class.ID] = true
	}
	return c, nil
}

var classID = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// check says what is wrong with a class, and fills in what was left out.
func (c *Class) check(own, known map[string]Source) error {
	if !classID.MatchString(c.ID) {
		return fmt.Errorf("class id %.50q: use 1 to 40 small letters, digits, _ and -", c.ID)
	}
	if c.Name == "" {
		c.Name = c.ID
	}
	switch c.Refresh {
	case "":
		c.Refresh = Needed
	case Needed, Everything:
	default:
		return fmt.Errorf("class %s: refresh %.20q: use needed or all", c.ID, c.Refresh)
	}
	if c.RetentionS == nil && c.Endurance == nil && c.ReadPJ == nil && c.WritePJ == nil {
		return fmt.Errorf("class %s has no figure: give at least one of retention_s, endurance_writes, "+
			"read_pj_per_bit, write_pj_per_bit", c.ID)
	}
	for _, f := range c.figures() {
		if f.Figure == nil {
			continue
		}
		if f.Value == 0 {
			return fmt.Errorf("class %s: %s is 0, or has no value: give one above 0, at most 1e30, as in "+
				"{value: 3600, source: KEY}", c.ID, f.key)
		}
		if !(f.Value > 0 && f.Value <= 1e30) {
			return fmt.Errorf("class %s: %s is %v: give a number above 0, at most 1e30", c.ID, f.key, f.Value)
		}
		if _, ok := own[f.Source]; ok {
			continue
		}
		if _, ok := known[f.Source]; !ok {
			return fmt.Errorf("class %s: %s has the source %.40q, which is not among the sources: add it with its "+
				"text and year", c.ID, f.key, f.Source)
		}
	}
	return nil
}

// namedFigure is a figure with its key; nil where it was not published.
type namedFigure struct {
	key string
	*Figure
}

func (c *Class) figures() []namedFigure {
	return []namedFigure{
		{"retention_s", c.RetentionS}, {"endurance_writes", c.Endurance}, {"read_pj_per_bit", c.ReadPJ},
		{"write_pj_per_bit", c.WritePJ},
		{"refresh_pj_per_bit", c.RefreshPJ},
	}
}
