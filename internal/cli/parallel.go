package cli

import "sync"

// maxParallel bounds the requests of one command at a time.
const maxParallel = 8

// inParallel calls do for 0 to n-1, a few at a time, and returns the errors in this order.
func inParallel(n int, do func(i int) error) []error {
	errs, free := make([]error, n), make(chan struct{}, maxParallel)
	var all sync.WaitGroup
	for i := range n {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			errs[i] = do(i)
		})
	}
	all.Wait()
	return errs
}
