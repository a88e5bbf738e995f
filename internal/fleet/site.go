package fleet

import (
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// AgentTimeout returns how long an agent may be silent before it is declared lost.
func (f *Fleet) AgentTimeout() time.Duration {
	site := f.site()
	return site.AgentTimeoutOrDefault().D()
}

// site returns the site's configuration, as far as this head knows it.
func (f *Fleet) site() trivet.SiteSpec {
	site, err := f.Sites.GetShared(trivet.SiteName)
	if err != nil { // a site without the record has the defaults
		return trivet.SiteSpec{}
	}
	return site.Spec
}

func (f *Fleet) siteIn(tx *store.Tx) trivet.SiteSpec {
	site, err := f.Sites.In(tx).Get(trivet.SiteName)
	if err != nil { // a site without the record has the defaults
		return trivet.SiteSpec{}
	}
	return site.Spec
}

func maxResets(s trivet.SiteSpec, w *trivet.Workflow) int {
	if w.Spec.Release.IsCheck() { // a machine that is reset while it is tested is not without a fault
		return 0
	}
	return s.ResetsOrDefault()
}
