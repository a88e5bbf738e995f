package client_test

import (
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func TestForeignResponses(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{502: trivet.ErrUnknown, 503: trivet.ErrUnavailable,
		403: trivet.ErrUnavailable, 504: trivet.ErrUnknown, 404: trivet.ErrNotFound} {
		if p := client.ParseProblem(status, []byte("<html>\nx")); !errors.Is(p, want) {
			t.Errorf("%d: %v", status, p)
		}
	}
}
