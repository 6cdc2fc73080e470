package config

// nearest returns the word that a misspelt name most likely means, or "" if none is close: at most three edits, and
// at most a third of the name, rounded up.
func nearest(name string, words []string) string {
	best, bestDistance := "", min(3, (len(name)+1)/3)+1
	for _, word := range words {
		if d := editDistance(name, word); d < bestDistance {
			best, bestDistance = word, d
		}
	}
	return best
}

// editDistance is the Levenshtein distance of a and b in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			substitute := diagonal
			if a[i-1] != b[j-1] {
				substitute++
			}
			diagonal = row[j]
			row[j] = min(substitute, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
