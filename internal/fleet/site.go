package fleet

import (
	"time"

	"github.com/trivet-project/trivet"
)

// AgentTimeout is how long an agent may be silent before it is declared lost.
func (f *Fleet) AgentTimeout() time.Duration {
	if site, err := f.Sites.GetShared(trivet.SiteName); err == nil && site.Spec.AgentTimeout != 0 {
		return site.Spec.AgentTimeout.D()
	}
	return trivet.DefaultAgentTimeout.D()
}

// OtherHeads returns the other heads that agents may talk to, and the URL where heads reach them.
func (f *Fleet) OtherHeads() map[string]string {
	urls := map[string]string{}
	for h := range f.Heads.AllShared() {
		if h.Name != f.head && h.Serves() && h.Status.Peer != "" {
			urls[h.Name] = h.Status.Peer
		}
	}
	return urls
}
