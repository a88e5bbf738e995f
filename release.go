package trivet

import (
	"cmp"
	"strconv"
	"strings"
)

// Release is the version of what programs understand: "0.3", or "0.3.1" where a patch adds to it. Patches that add
// nothing have the release before them.
type Release string

// CurrentRelease is this program's. A kind, field or behaviour that a release adds is registered with it (see
// [KindInfo.Since]) and not used before all heads have it: Site.status.clusterVersion is the lowest of theirs.
const CurrentRelease Release = "0.3.1"

// Compare returns -1, 0 or 1 for an earlier release, the same and a later one. The empty one is before all others.
func (r Release) Compare(other Release) int {
	for a, b := string(r), string(other); a != "" || b != ""; {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		m, _ := strconv.Atoi(x)
		n, _ := strconv.Atoi(y)
		if c := cmp.Compare(m, n); c != 0 {
			return c
		}
	}
	return cmp.Compare(min(len(r), 1), min(len(other), 1))
}
