package trivet

import (
	"fmt"
	"regexp"
	"time"
)

// Kind is the name of a kind of records, as in YAML: "Machine", "Provision".
type Kind string

// Meta is the part that all records have. It is embedded, so its fields appear at the top of the record's JSON,
// beside spec and status.
type Meta struct {
	Kind Kind `json:"kind"` // such as Machine
	// Project is the project that the record belongs to; empty for a kind whose records belong to the cluster.
	Project string            `json:"project,omitempty"`
	Name    string            `json:"name"`             // unique within its kind and project
	Labels  map[string]string `json:"labels,omitempty"` // for selectors; values chosen by people
	// Annotations are notes of people and programs, which nothing selects by: at most MaxAnnotations, each of at most
	// MaxAnnotation bytes of text, in all MaxAnnotationBytes.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Managed has, by the name of a manager, the fields of labels, annotations and spec that it applied, as JSON pointers
	// (RFC 6901): see `trivet apply`. "direct" has those that other writes have changed since. Written by Trivet.
	Managed map[string][]string `json:"managed,omitempty"`
	// Creator is the manager whose apply has created the record: `trivet apply --prune` deletes it with its file. Written
	// by Trivet.
	Creator string `json:"creator,omitempty"`
	// UID distinguishes this record from an earlier or later one of the same name. It is set at creation and constant.
	UID string `json:"uid,omitempty"`
	// Generation counts the changes of spec. An update by a person is checked against it.
	Generation int64 `json:"generation,omitempty"`
	// Revision is the store's revision of the last change. It is set on every read, and not stored.
	Revision int64 `json:"revision,omitempty"`
	// Created is the wall-clock time of creation, for display.
	Created time.Time `json:"created,omitzero"`
}

// Header returns the record's Meta.
func (m *Meta) Header() *Meta { return m }

// Record is a record of any kind, for code that is generic over the kinds: a pointer to its struct.
type Record interface {
	Header() *Meta
	// Validate returns what is wrong with the record by itself, as one *FieldError or several joined.
	Validate() error
}

// Bounds of annotations.
const (
	MaxAnnotations     = 64
	MaxAnnotation      = 4 << 10
	MaxAnnotationBytes = 16 << 10
)

// AnnotationsRelease is the release that added annotations.
const AnnotationsRelease Release = "0.3.1"

// ManagedRelease is the release that added Managed and Creator.
const ManagedRelease Release = "0.3.1"

// MaxName bounds a record's name, MaxRecord its JSON, both in bytes. etcd refuses requests over 1.5 MiB.
const (
	MaxName   = 128
	MaxRecord = 512 << 10
)

var nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$`)

// ValidateName returns an error if name is not a valid name of a record: lower-case letters and digits, with '-', '.'
// and ':' inside, at most MaxName bytes, no "..". So a name is safe in a URL, in a file name and in a key of the
// store.
func ValidateName(name string) error {
	switch {
	case name == "":
		return &FieldError{Field: "name", Problem: "is missing"}
	case len(name) > MaxName:
		return &FieldError{Field: "name", Problem: fmt.Sprintf("has %d bytes; at most %d", len(name), MaxName)}
	case !nameForm.MatchString(name):
		return &FieldError{Field: "name", Problem: fmt.Sprintf(
			"%q: use a-z, 0-9, '-', '.' and ':', and begin and end with a letter or digit", name)}
	}
	for i := 1; i < len(name); i++ {
		if name[i] == '.' && name[i-1] == '.' {
			return &FieldError{Field: "name", Problem: fmt.Sprintf("%q contains '..'", name)}
		}
	}
	return nil
}
