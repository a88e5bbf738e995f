package trivet

import (
	"fmt"
	"regexp"
	"time"
)

// Kind names a noun, as it stands in YAML: "Machine", "Provision".
type Kind string

// Meta is what every record has. It is embedded, so its fields stand at the top of the record's JSON, beside spec and
// status.
type Meta struct {
	Kind   Kind              `json:"kind"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	// UID tells this record from an earlier or later one of the same name. Given at creation, never changed.
	UID string `json:"uid,omitempty"`
	// Generation counts the changes of spec. An edit by a person is checked against it.
	Generation int64 `json:"generation,omitempty"`
	// Revision is the store's revision of the last change. The store sets it on every read; it is not stored itself.
	Revision int64 `json:"revision,omitempty"`
	// Created is the wall-clock time of creation, for people to read.
	Created time.Time `json:"created,omitzero"`
}

// Header gives the record's Meta to code that is generic over the nouns.
func (m *Meta) Header() *Meta { return m }

// Record is what the generic paths (store, API, client, CLI) know of a noun: a pointer to its struct.
type Record interface {
	Header() *Meta
	// Validate says what is wrong with the record by itself, as a *FieldError or several joined. It reads nothing else.
	Validate() error
}

// MaxName bounds a record's name, MaxRecord its JSON, both in bytes. etcd refuses requests over 1.5 MiB.
const (
	MaxName   = 128
	MaxRecord = 512 << 10
)

var nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$`)

// ValidateName refuses what cannot be a record's name: lower-case letters, digits, '-', '.' and ':' inside, at most
// MaxName bytes, no "..". So a name is safe in a URL, in a file's name and in a key of the store.
func ValidateName(name string) error {
	switch {
	case name == "":
		return &FieldError{Field: "name", Problem: "is missing"}
	case len(name) > MaxName:
		return &FieldError{Field: "name", Problem: fmt.Sprintf("has %d bytes; at most %d", len(name), MaxName)}
	case !nameForm.MatchString(name):
		return &FieldError{Field: "name", Problem: fmt.Sprintf("%q: use a-z, 0-9, '-', '.', ':' and begin and end with a letter or digit", name)}
	}
	for i := 1; i < len(name); i++ {
		if name[i] == '.' && name[i-1] == '.' {
			return &FieldError{Field: "name", Problem: fmt.Sprintf("%q holds '..'", name)}
		}
	}
	return nil
}
