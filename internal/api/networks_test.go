package api_test

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func network(name, cidr string) *trivet.Network {
	return &trivet.Network{Meta: trivet.Meta{Name: name}, Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix(cidr)}}
}

// The number of networks is not limited by what one transaction can compare.
func TestManyNetworks(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	networks := client.Of[trivet.Network](h.client(h.admin))
	var writers errgroup.Group
	writers.SetLimit(8)
	for i := range 250 {
		writers.Go(func() error {
			_, err := networks.Create(t.Context(), network(fmt.Sprint("n", i), fmt.Sprintf("10.1.%d.0/24", i)))
			return err
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, cidr := range map[string]string{"enclosing": "10.0.0.0/8", "within": "10.1.77.128/25", "same": "10.1.3.0/24",
		"all": "0.0.0.0/0"} {
		if _, err := networks.Create(t.Context(), network(name, cidr)); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := networks.Update(t.Context(), network("n7", "10.2.0.0/16")); err != nil {
		t.Errorf("to a free subnet: %v", err)
	}
	if _, err := networks.Create(t.Context(), network("after", "10.1.7.0/25")); err != nil {
		t.Errorf("in the subnet that the network had before: %v", err)
	}
}

// Of two networks that overlap and are created at once through two heads, one is refused, whichever encloses the
// other.
func TestOverlapOfConcurrentNetworks(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	heads := []client.Records[trivet.Network, *trivet.Network]{client.Of[trivet.Network](h.client(h.admin)),
		client.Of[trivet.Network](h.twin().client(h.admin))}
	var accepted atomic.Int64
	for i := range 30 {
		var pair sync.WaitGroup
		for at, cidr := range []string{fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("10.%d.%d.0/24", i, i)} {
			pair.Go(func() {
				_, err := heads[(at+i)%2].Create(t.Context(), network(fmt.Sprintf("n%d-%d", i, at), cidr))
				if err == nil {
					accepted.Add(1)
				} else if !errors.Is(err, trivet.ErrInvalid) {
					t.Error(err)
				}
			})
		}
		pair.Wait()
	}
	if accepted.Load() != 30 {
		t.Errorf("of 30 overlapping pairs %d networks were accepted", accepted.Load())
	}
}
