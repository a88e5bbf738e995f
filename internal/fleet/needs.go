package fleet

import (
	"fmt"
	"slices"
	"sync"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// What a provision needs of its machine is known once its template is rendered, which is at the claim: an image has an
// architecture, and needs a disk that is large enough. A claim of a machine that lacks it fails, writes nothing, and
// the head remembers what the provision needs, so that the next search leaves out all machines that lack it. A head
// that has forgotten it learns it again in the same way.

// lackError: the machine lacks what the provision needs.
type lackError struct {
	machine, lack string
	needs         []workflow.Need
	template      int64 // its revision
}

func (e *lackError) Error() string {
	return fmt.Sprintf("machine %s cannot be used: %s", e.machine, e.lack)
}

// Unwrap returns ErrConflict: another machine may be chosen.
func (e *lackError) Unwrap() error { return trivet.ErrConflict }

// checkNeeds refuses a machine that lacks what the run needs.
func (f *Fleet) checkNeeds(t *transition, w *trivet.Workflow, template *trivet.Template) error {
	needs := workflow.Needs(w)
	if lack := workflow.Lacks(t.machine, needs); lack != "" {
		return &lackError{machine: t.machine.Name, lack: lack, needs: needs, template: template.Revision}
	}
	return nil
}

// maxNeeds is of how many provisions it is remembered what they need. Beyond it all is forgotten.
const maxNeeds = 1024

// needs remembers what provisions need.
type needs struct {
	mu    sync.Mutex
	known map[string]knownNeeds // guarded by mu; by UID
}

// knownNeeds are those of one generation of a provision and one revision of its template.
type knownNeeds struct {
	generation, template int64
	needs                []workflow.Need
}

func (n *needs) note(p *trivet.Provision, e *lackError) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil || len(n.known) >= maxNeeds {
		n.known = map[string]knownNeeds{}
	}
	n.known[p.UID] = knownNeeds{p.Generation, e.template, e.needs}
}

func (n *needs) of(p *trivet.Provision) knownNeeds {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[p.UID]
}

// needsOf returns what a provision needs, as far as this head knows, with the images as they are now.
func (f *Fleet) needsOf(p *trivet.Provision) []workflow.Need {
	known := f.needs.of(p)
	if known.needs == nil || known.generation != p.Generation {
		return nil
	}
	t, err := f.Templates.GetShared(trivet.Resolve(p.Project, p.Spec.Template))
	if err != nil || t.Revision != known.template {
		return nil
	}
	now := slices.Clone(known.needs)
	for i := range now {
		image, err := f.Images.GetShared(trivet.Resolve(p.Project, now[i].Image))
		if err != nil {
			return nil
		}
		if now[i].Arch = image.Spec.Arch; now[i].Bytes > 0 {
			now[i].Bytes = image.Spec.RawBytes
		}
	}
	return now
}

// lacking returns why a provision with these needs does not use a machine; empty where it may.
func lacking(m *trivet.Machine, needs []workflow.Need) string {
	if lack := workflow.Lacks(m, needs); lack != "" {
		return "not used, as " + lack
	}
	return ""
}
