package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func TestHeadsAreInOrder(t *testing.T) {
	var view trivet.Cluster
	for _, name := range []string{"rack2", "head10", "head9", "head", "head0", "box", "head1"} {
		view.Heads = append(view.Heads, trivet.HeadView{Name: name})
	}
	var out bytes.Buffer
	a := &app{Env: Env{Out: &out, Err: &out}, output: "name"}
	view.Quorum = true
	if err := a.showHeads(view, false); err != nil {
		t.Fatal(err)
	}
	want := []string{"head/box", "head/head", "head/head0", "head/head1", "head/head9", "head/head10", "head/rack2"}
	if got := strings.Fields(out.String()); !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}
