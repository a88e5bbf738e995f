package fleet

import (
	"time"

	"github.com/trivet-project/trivet"
)

// Silence is how long an agent may say nothing before it is held for lost.
func (f *Fleet) Silence() time.Duration {
	if site, err := f.Sites.Peek(trivet.SiteName); err == nil && site.Spec.Silence != 0 {
		return site.Spec.Silence.D()
	}
	return trivet.DefaultSilence.D()
}

// OtherHeads returns the other heads that agents may talk to, and the URL where heads reach them.
func (f *Fleet) OtherHeads() map[string]string { return f.PeerURLs(f.head) }
