package fleet_test

import (
	"testing"

	"github.com/trivet-project/trivet"
)

// A machine that serves a provision by an operator's statement is renamed, and replaced, as any other.
func TestInstalledIsReplaced(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	r.recovered()
	m, spare := r.newMachine(1), r.newMachine(2)
	r.do(m, "accept claim recover")
	r.do(spare, "accept")
	r.must(m.statedInstalled())
	r.must(r.Rename(t.Context(), m.name, trivet.RenameRequest{Name: "r1-u12"}, "alice"))
	m.name = "r1-u12"
	if p := r.provisionNamed("p1"); p.Status.Machine != "r1-u12" || p.Status.State != trivet.ProvisionSucceeded {
		t.Fatalf("after the rename: %+v", p.Status)
	}
	r.label(spare.name, map[string]string{"n": "s1"})
	r.must(r.replace("p1", trivet.ReplaceRequest{Reason: "noise"}))
	p := r.provisionNamed("p1")
	if p.Status.Machine == "r1-u12" || p.Status.State == trivet.ProvisionSucceeded {
		t.Errorf("the provision: %+v", p.Status)
	}
	m.runs = true
	m.check("replaced")
}
