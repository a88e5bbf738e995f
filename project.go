package trivet

import (
	"fmt"
	"regexp"
	"strings"
)

// A record of a kind of [ScopeProject] belongs to a project, and its name is unique there. A project has no record: it
// exists while records belong to it.
//
// The full name of such a record is "project/name": the store and its tables address it by that. Another record of its
// project refers to it by its name alone. Records of the cluster and messages use its short name, which leaves out the
// default project.

// DefaultProject is the project where none is chosen. SharedProject is the library: the records of each project may
// refer to its records, as "shared/NAME".
const (
	DefaultProject = "default"
	SharedProject  = "shared"
)

// MaxProject bounds the name of a project, in bytes.
const MaxProject = 63

var projectForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// ValidateProject returns an error if project is not a valid name of a project: a label of a DNS name in lower case.
func ValidateProject(project string) error {
	switch {
	case project == "":
		return &FieldError{Field: "project", Problem: "is missing"}
	case len(project) > MaxProject:
		return &FieldError{Field: "project", Problem: fmt.Sprintf("has %d bytes; at most %d", len(project), MaxProject)}
	case !projectForm.MatchString(project):
		return &FieldError{Field: "project", Problem: fmt.Sprintf(
			"%.80q: use a-z, 0-9 and '-', and begin and end with a letter or digit", project)}
	}
	return nil
}

// ValidateProject returns an error if a record of the kind must not have this project: one of the cluster has none.
func (k KindInfo) ValidateProject(project string) error {
	switch {
	case k.Scope == ScopeProject:
		return ValidateProject(project)
	case project != "":
		return &FieldError{Field: "project", Problem: fmt.Sprintf("is %.80q; %s belong to the cluster, not to a project",
			project, k.Plural)}
	}
	return nil
}

// FullName returns the full name of a record; that of a record without a project is its name.
func FullName(project, name string) string {
	if project == "" {
		return name
	}
	return project + "/" + name
}

// SplitName returns the parts of a full name.
func SplitName(full string) (project, name string) {
	project, name, ok := strings.Cut(full, "/")
	if !ok {
		return "", full
	}
	return project, name
}

// ShortName returns a full name without the default project.
func ShortName(full string) string { return strings.TrimPrefix(full, DefaultProject+"/") }

// Resolve returns the full name of what a record of a project refers to by a name in a field: it is in the same
// project, unless the field names another one. project is empty for a record of the cluster, whose references without
// a project are to the default one.
func Resolve(project, name string) string {
	switch {
	case strings.Contains(name, "/"):
		return name
	case project == "":
		return FullName(DefaultProject, name)
	}
	return FullName(project, name)
}

// RelativeName returns the name by which a record of a project refers to another one: the inverse of [Resolve].
func RelativeName(project, full string) string { return strings.TrimPrefix(full, project+"/") }

// FullName returns the record's name in the store.
func (m *Meta) FullName() string { return FullName(m.Project, m.Name) }

// ShortName returns the name by which records of the cluster and messages name the record.
func (m *Meta) ShortName() string { return ShortName(m.FullName()) }

// ValidateFullName returns an error if full is not a valid full name of a record of a project.
func ValidateFullName(full string) error {
	project, name := SplitName(full)
	if err := ValidateProject(project); err != nil {
		return err
	}
	return ValidateName(name)
}

// ValidateReference returns an error if a record of a project must not refer to another one of a project by this name:
// "NAME" is in its own project, "shared/NAME" in the library.
func ValidateReference(name string) error {
	project, own := SplitName(name)
	if strings.Contains(name, "/") && project != SharedProject {
		return &FieldError{Field: "name", Problem: fmt.Sprintf(
			"%.200q is in another project; use a name of this project, or %s/NAME", name, SharedProject)}
	}
	return ValidateName(own)
}
