package fleet

import (
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// worked is when machines last succeeded with what they share, by kind and name, as far as this head has observed it
// since its start. It is evidence for one decision only: a machine that failed while another one succeeded is at fault
// itself. What is missing here, after a start or in a copy that is behind, leaves that decision to the failures of
// other machines. It has one time for each platform, network and image that was in use since then, at most maxWorked.
type worked struct {
	mu   sync.Mutex
	last map[string]time.Time // guarded by mu
}

// maxWorked bounds what is remembered; beyond it, all is forgotten.
const maxWorked = 10_000

func (w *worked) note(key string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.last) >= maxWorked || w.last == nil {
		w.last = map[string]time.Time{}
	}
	if at.After(w.last[key]) {
		w.last[key] = at
	}
}

// since reports whether a machine has succeeded after a time.
func (w *worked) since(key string, t time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last[key].After(t)
}

// Observe notes what a change of a run shows to work. was is nil for a run that is new to this head.
func (f *Fleet) Observe(was, is *trivet.Workflow) {
	var before *trivet.WorkflowStatus
	if was != nil {
		before = &was.Status
	}
	kinds, at := workflow.Shown(before, &is.Status)
	if len(kinds) == 0 {
		return
	}
	m, err := f.Machines.GetShared(is.Spec.Machine)
	if err != nil {
		return
	}
	for _, kind := range kinds {
		switch kind {
		case "Site":
			f.worked.note(sharedKey(kind, trivet.SiteName), at)
		case "Network":
			f.worked.note(sharedKey(kind, f.networkName(m)), at)
		case "Platform":
			site := f.site()
			f.worked.note(sharedKey(kind, site.PlatformOf(m)), at)
		case "Image":
			for _, name := range imagesOf(is) {
				f.worked.note(sharedKey(kind, name), at)
			}
		}
	}
}

func sharedKey(kind trivet.Kind, name string) string { return string(kind) + "/" + name }
