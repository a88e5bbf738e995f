package trivet

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// problems collects what is wrong with a record, so that all of it is reported at once.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (p *problems) wrap(err error) {
	if err != nil {
		*p = append(*p, err)
	}
}

func (p *problems) name(name string) { p.wrap(ValidateName(name)) }

func (p *problems) need(field, value string) {
	if value == "" {
		p.add(field, "is missing")
	}
}

// ref validates the name of another record; it may be empty.
func (p *problems) ref(field, name string) {
	if name == "" {
		return
	}
	var fe *FieldError
	if err := ValidateName(name); errors.As(err, &fe) {
		p.add(field, "%s", fe.Problem)
	}
}

// projectRef validates how a record of a project refers to another one; it may be empty.
func (p *problems) projectRef(field, name string) {
	var fe *FieldError
	if err := ValidateReference(name); name != "" && errors.As(err, &fe) {
		p.add(field, "%s", fe.Problem)
	}
}

// clusterRef validates how a record of the cluster refers to one of a project: "NAME" or "PROJECT/NAME".
func (p *problems) clusterRef(field, name string) {
	project, own, inProject := strings.Cut(name, "/")
	if !inProject {
		p.ref(field, name)
		return
	}
	var fe *FieldError
	if err := errors.Join(ValidateProject(project), ValidateName(own)); errors.As(err, &fe) {
		p.add(field, "%s", fe.Problem)
	}
}

func (p *problems) oneOf(field, value string, allowed ...string) {
	if slices.Contains(allowed, value) {
		return
	}
	named := slices.DeleteFunc(slices.Clone(allowed), func(s string) bool { return s == "" })
	if value == "" {
		p.add(field, "is missing; it is one of %s", strings.Join(named, ", "))
		return
	}
	p.add(field, "%q must be one of %s", value, strings.Join(named, ", "))
}

func (p *problems) max(field string, n, limit int) {
	if n > limit {
		p.add(field, "has %d entries; at most %d", n, limit)
	}
}

func (p *problems) bytes(field, value string, limit int) {
	if len(value) > limit {
		p.add(field, "has %d bytes; at most %d", len(value), limit)
	}
}

func (p problems) err() error { return errors.Join(p...) }

var labelForm = regexp.MustCompile(`^[A-Za-z0-9]([-_./A-Za-z0-9]*[A-Za-z0-9])?$`)

// ValidateLabels returns an error for labels that a selector cannot match.
func ValidateLabels(labels map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		switch value := labels[key]; {
		case !isLabelKey(key):
			errs = append(errs, errLabelKey("labels", key))
		case strings.ContainsAny(value, ",=\n\r") || len(value) > 256:
			errs = append(errs, &FieldError{Field: "labels." + key,
				Problem: "must have at most 256 bytes, without comma, = and line breaks"})
		}
	}
	if len(labels) > 64 {
		errs = append(errs, &FieldError{Field: "labels", Problem: "has more than 64 entries"})
	}
	return errors.Join(errs...)
}

func isLabelKey(key string) bool { return labelForm.MatchString(key) && len(key) <= 128 }

func errLabelKey(field, key string) error {
	return &FieldError{Field: field + "." + key[:min(len(key), 128)],
		Problem: "has a wrong key: use letters, digits, and - _ . / inside, at most 128"}
}

// ValidateAnnotations returns an error for annotations that are too many or too long, or are no text.
func ValidateAnnotations(annotations map[string]string) error {
	var errs []error
	bytes := 0
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		value := annotations[key]
		bytes += len(key) + len(value)
		switch {
		case !isLabelKey(key):
			errs = append(errs, errLabelKey("annotations", key))
		case len(value) > MaxAnnotation:
			errs = append(errs, &FieldError{Field: "annotations." + key,
				Problem: fmt.Sprintf("has %d bytes; at most %d", len(value), MaxAnnotation)})
		case !utf8.ValidString(value) || strings.ContainsFunc(value, isNoText):
			errs = append(errs, &FieldError{Field: "annotations." + key,
				Problem: "must be UTF-8 text, without control characters but line feeds and tabs"})
		}
	}
	if len(annotations) > MaxAnnotations {
		errs = append(errs, &FieldError{Field: "annotations",
			Problem: fmt.Sprintf("has %d entries; at most %d", len(annotations), MaxAnnotations)})
	}
	if bytes > MaxAnnotationBytes {
		errs = append(errs, &FieldError{Field: "annotations",
			Problem: fmt.Sprintf("has %d bytes of keys and values; at most %d", bytes, MaxAnnotationBytes)})
	}
	return errors.Join(errs...)
}

func isNoText(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
