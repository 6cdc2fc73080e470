package analyze

// Factors are what a figure of a class is multiplied with, to see how much depends on it.
var (
	retentionFactors = []float64{0.1, 0.2, 0.5, 1, 2, 5, 10}
	energyFactors    = []float64{0.5, 1, 2}
	wearFactors      = []float64{0.1, 1, 10}
)

// Sensitivity is what follows where a figure of a class is another one.
type Sensitivity struct {
	Parameter string  `json:"parameter"`
	Factor    float64 `json:"factor"`
	Value     float64 `json:"value"`
	Row
}

// vary works rows out for classes of which one figure at a time is multiplied; figures that were not published are
// left out.
func vary(subjects []subject, c *Class, o demandOptions) (rows []Sensitivity) {
	for _, p := range []struct {
		name    string
		of      func(*Class) **Figure
		factors []float64
	}{
		{"retention_s", func(c *Class) **Figure { return &c.RetentionS }, retentionFactors},
		{"endurance_writes", func(c *Class) **Figure { return &c.Endurance }, wearFactors},
		{"read_pj_per_bit", func(c *Class) **Figure { return &c.ReadPJ }, energyFactors},
		{"write_pj_per_bit", func(c *Class) **Figure { return &c.WritePJ }, energyFactors},
		{"refresh_pj_per_bit", func(c *Class) **Figure { return &c.RefreshPJ }, energyFactors},
	} {
		published := *p.of(c)
		if published == nil {
			continue
		}
		for _, factor := range p.factors {
			other, figure := *c, *published
			figure.Value *= factor
			*p.of(&other) = &figure
			rows = append(rows, Sensitivity{p.name, factor, figure.Value, judgeRow(subjects, &other, o)})
		}
	}
	return rows
}
