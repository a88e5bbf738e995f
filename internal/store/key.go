package store

import (
	"strings"

	"github.com/trivet-project/trivet"
)

// Records stand under /trivet/<kind in lower case>/<name>. What begins with '-' instead of a kind is the store's own.
const (
	prefix    = "/trivet/"
	guardPart = "-guard/" // and a head's name: see Store.learn
	idPart    = "-tx/"    // and a head's name: the ID of a transaction that puts nothing else
	leasePart = "-lease"  // and a lease's name: its holder; the only kind of these that has events
	beatPart  = "-beat"   // and a lease's name: that its holder lives
	limitPart = "-limit"  // and an index and its key: written by whoever counts there
)

func recordKey(kind, name string) string { return prefix + kind + "/" + name }

// kindPart is a kind as it stands in keys.
func kindPart(kind trivet.Kind) string { return strings.ToLower(string(kind)) }

// isOwn says whether what stands at a kind's place in a key makes it the store's own.
func isOwn(part string) bool { return strings.HasPrefix(part, "-") }

// splitKey gives the kind and name of a record's key; the store's own keys have a kind that begins with '-'.
func splitKey(key string) (kind, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// indexPath is where a record stands under one key of an index. Parts hold no NUL: kinds and index names are ours, and keys
// are cleaned of it.
func indexPath(kind, index, key, name string) string {
	return indexPrefix(kind, index, key) + name
}

func indexPrefix(kind, index, key string) string {
	if strings.IndexByte(key, 0) >= 0 {
		key = strings.ReplaceAll(key, "\x00", "\uFFFD")
	}
	return "=" + kind + "\x00" + index + "\x00" + key + "\x00"
}
