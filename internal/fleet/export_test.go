package fleet

// SetSearched sets how many machines one search reads.
func (f *Fleet) SetSearched(n int) { f.searches.most = n }
