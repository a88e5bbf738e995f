package api_test

import (
	"fmt"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// The SDK sends the revision by itself.
func TestClientReadsItsWritesAtAnotherHead(t *testing.T) {
	t.Parallel()
	a := newHead(t)
	b := a.twin()
	for i := range 50 {
		c := must(client.New(client.Config{Endpoints: []string{a.url, b.url}, Trust: a.keys.CA.Trust(),
			Token: a.admin}))(t)
		machines := client.Of[trivet.Machine](c)
		name := fmt.Sprintf("m%d", i)
		if _, err := machines.Create(t.Context(), machine(name)); err != nil {
			t.Fatal(err)
		}
		a.server.Close()
		if _, err := machines.Get(t.Context(), name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.Close()
		a.listenAgain()
	}
}
