package store

import (
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
)

// Cold data has keys of its own (see cold.go). The key of a record is /trivet/<kind in lower case>/<full name>. A kind
// that begins with '-' is internal to the store.
const (
	prefix    = "/trivet/"
	guardPart = "-guard/"              // and a head's name: see Store.resolve
	idPart    = "-tx/"                 // and a head's name: the ID of a transaction that puts nothing else
	leasePart = "-lease"               // and a lease's name: its holder; the only internal kind with events
	renewPart = "-renew"               // and a lease's name: rewritten by its holder
	listPart  = "-list"                // and an index and its key: written by each transaction that adds to the list
	specPart  = "-spec/"               // and the key of a record without the prefix: its spec (see apart.go)
	activeKey = prefix + "-key/active" // the ID of the key that values are written with: see active.go

	historyPrefix = "/trivet-history/" // what the keys of cold kinds begin with, and of former records: see former.go
	formerPart    = "-former/"         // after that, and a kind and a group: the names of its former records
)

func recordKey(kind, name string) string { return prefix + kind + "/" + name }

// key returns the key of a record by its full name. It panics if that lacks the project of a kind that has one: the
// records of two projects would be mistaken for each other.
func (info *kindInfo) key(name string) string {
	if info.scope == trivet.ScopeProject && !strings.Contains(name, "/") {
		panic(fmt.Sprintf("store: %s %q is addressed without its project", info.kind, name))
	}
	if info.cold() {
		key, _ := historyKey(info.part, name)
		return key
	}
	return recordKey(info.part, name)
}

// split returns the project and name of a record by its full name.
func (info *kindInfo) split(name string) (project, own string) {
	if info.scope != trivet.ScopeProject {
		return "", name
	}
	return trivet.SplitName(name)
}

// validateName returns an error if a full name is not valid for a record of the kind.
func (info *kindInfo) validateName(name string) error {
	if info.scope == trivet.ScopeProject {
		return trivet.ValidateFullName(name)
	}
	return trivet.ValidateName(name)
}

// kindPart returns a kind as written in keys.
func kindPart(kind trivet.Kind) string { return strings.ToLower(string(kind)) }

// isInternal reports whether a kind, as written in keys, is internal to the store.
func isInternal(part string) bool { return strings.HasPrefix(part, "-") }

// splitKey returns the kind and full name of a key. The name of a page of a cold kind is that of its records without
// their last character.
func splitKey(key string) (kind, name string, ok bool) {
	if rest, cold := strings.CutPrefix(key, historyPrefix); cold {
		return strings.Cut(strings.Replace(rest, slotMark, "", 1), "/")
	}
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// indexPath returns the path that leads from one key of an index to a record: that of the list, and the record's key.
func indexPath(e *entry, ix index, key string) string { return listPath(e.kind, ix.name, key) + e.key }

// listPath returns what the paths of one key of an index begin with. No part contains NUL: kinds and index names are
// constants, and NUL is replaced in keys.
func listPath(kind, index, key string) string {
	if strings.IndexByte(key, 0) >= 0 {
		key = strings.ReplaceAll(key, "\x00", "\uFFFD")
	}
	return kind + "\x00" + index + "\x00" + key + "\x00"
}
