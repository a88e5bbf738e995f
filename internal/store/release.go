package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// checkRelease refuses a record that not all heads understand: one of a kind, or with a field, that a later release
// added than Site.status.clusterVersion. The commit compares the site.
func (tx *Tx) checkRelease(info *kindInfo, doc []byte) error {
	if info.since == "" && len(info.fieldsSince) == 0 {
		return nil
	}
	reached := tx.ClusterVersion()
	if info.since.Compare(reached) > 0 {
		return errRelease("records of kind "+string(info.kind), info.since, reached)
	}
	for _, path := range slices.Sorted(maps.Keys(info.fieldsSince)) {
		if since := info.fieldsSince[path]; since.Compare(reached) > 0 && hasField(doc, path) {
			return errRelease(path, since, reached)
		}
	}
	return nil
}

// ClusterVersion returns the release that all heads have: what a later one added must not be used. The commit
// compares it.
func (tx *Tx) ClusterVersion() trivet.Release {
	site, ok := tx.current("Site", trivet.SiteName).(*trivet.Site)
	if !ok {
		return ""
	}
	return site.Status.ClusterVersion
}

func errRelease(what string, since, reached trivet.Release) error {
	return &trivet.Error{Op: "put", Hint: "upgrade the other heads first: trivet head list",
		Err: fmt.Errorf("%w: %s need release %s on all heads; the lowest has %q", trivet.ErrConflict, what, since,
			reached)}
}

// hasField reports whether a record's JSON has a field, by its path. That of a list is a field of any of its elements.
func hasField(doc []byte, path string) bool {
	var list []json.RawMessage
	if json.Unmarshal(doc, &list) == nil {
		return slices.ContainsFunc(list, func(element json.RawMessage) bool { return hasField(element, path) })
	}
	name, rest, more := strings.Cut(path, ".")
	var fields map[string]json.RawMessage
	if json.Unmarshal(doc, &fields) != nil || fields[name] == nil {
		return false
	}
	return !more || hasField(fields[name], rest)
}
