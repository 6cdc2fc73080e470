package bench

import (
	"math/rand/v2"

	"github.com/llamatap/llamatap/kvcache"
)

// vocabulary is the token ids that synthetic prompts are made of: the middle half of a model's, because tokens that
// control something stand at the ends of known ones.
type vocabulary struct{ first, n int32 }

func newVocabulary(size int32) vocabulary { return vocabulary{first: size / 4, n: size / 2} }

// tokens are those of a prompt: a block of them for each hash id, the last one cut to the prompt's length. They are the
// same in every replay. Blocks of different ids differ in their first token where the ids are less than n apart, and
// else in the first two, where both are below n².
func (v vocabulary) tokens(q *kvcache.TraceRequest, block int) []int32 {
	all := make([]int32, 0, q.Input)
	for _, id := range q.IDs {
		random := rand.New(rand.NewPCG(uint64(id), 0))
		for i := 0; i < block && int64(len(all)) < q.Input; i++ {
			t := random.Int32N(v.n)
			switch i {
			case 0:
				t = int32(uint64(id) % uint64(v.n))
			case 1:
				t = int32(uint64(id) / uint64(v.n) % uint64(v.n))
			}
			all = append(all, v.first+t)
		}
	}
	return all
}
