package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// fetchTimeout bounds the requests for keys.
const fetchTimeout = 3 * time.Second

// fetch requests something that full heads have from all of them at once, and calls use with each response, until use
// reports that it is enough, and returns its error then. A witness that was taken over could send keys that it knows:
// its response is refused.
func fetch[T any](ctx context.Context, l *Local, path, what string, use func(*T) (enough bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	others := l.otherMembers()
	type result struct {
		response T
		err      error
	}
	results := make(chan result, len(others))
	for _, p := range others {
		go func() { // ends with ctx, at the latest
			var r result
			r.err = l.client.CallFullHead(ctx, p.URL, path, struct{}{}, &r.response)
			results <- r
		}()
	}
	err := fmt.Errorf("%w: no other full head responds with %s", trivet.ErrUnavailable, what)
	for range others {
		r := <-results
		enough := false
		if r.err == nil {
			enough, r.err = use(&r.response)
		}
		if enough {
			return r.err
		}
		err = errors.Join(err, r.err)
	}
	return err
}
