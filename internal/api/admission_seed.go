package api

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"golang.org/x/crypto/ssh"

	"github.com/trivet-project/trivet"
)

// What an installed system gets is checked where it is written: cloud-init ignores what it does not understand, so
// that a mistake would show itself as a system without users or without a network.

// admitSeed checks what a provision sets for cloud-init, where that is new.
func admitSeed(old, next *trivet.Provision) error {
	was := trivet.ProvisionSpec{}
	if old != nil {
		was = old.Spec
	}
	var errs []error
	if is := next.Spec.Hostname; is != was.Hostname && is != "" {
		errs = append(errs, checkHostname(is))
	}
	if is := next.Spec.UserData; is != was.UserData && is != "" {
		errs = append(errs, checkUserData(is))
	}
	if is := next.Spec.NetworkData; is != was.NetworkData && is != "" {
		errs = append(errs, checkNetworkData(is))
	}
	for i, key := range next.Spec.SSHKeys {
		if slices.Contains(was.SSHKeys, key) {
			continue
		}
		if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key)); err != nil {
			errs = append(errs, &trivet.FieldError{Field: fmt.Sprintf("spec.sshKeys[%d]", i), Problem: "is no public key, or " +
				"is damaged; write the content of a file such as ~/.ssh/id_ed25519.pub"})
		}
	}
	return errors.Join(errs...)
}

// hostLabel is a label of a host name (RFC 1123, section 2.1).
var hostLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkHostname(name string) error {
	for label := range strings.SplitSeq(name, ".") {
		if !hostLabel.MatchString(label) {
			return &trivet.FieldError{Field: "spec.hostname", Problem: fmt.Sprintf("%q has the label %q; a label has a-z, "+
				"0-9 and '-' inside, and at most 63 characters", name, label)}
		}
	}
	return nil
}

// userDataTypes are how texts begin that cloud-init understands (cloud-init documentation, "User-data formats").
var userDataTypes = []string{"#cloud-config", "#!", "#include", "#cloud-boothook", "#part-handler",
	"## template: jinja", "content-type:", "mime-version:"}

func checkUserData(text string) error {
	first, _, _ := strings.Cut(text, "\n")
	known := func(prefix string) bool { return strings.HasPrefix(strings.ToLower(first), prefix) }
	if !slices.ContainsFunc(userDataTypes, known) {
		return &trivet.FieldError{Field: "spec.userData", Problem: "begins with a line that cloud-init does not know, so " +
			"that it would ignore all of it; begin with #cloud-config, or with #! for a script"}
	}
	if strings.TrimSpace(first) != "#cloud-config" {
		return nil
	}
	root, err := yamlRoot(text)
	if _, ok := root.(*ast.MappingNode); err == nil && !ok && root != nil {
		err = errors.New("it is no object: write keys such as packages: [vim]")
	}
	if err != nil {
		return &trivet.FieldError{Field: "spec.userData", Problem: fmt.Sprintf("is no valid #cloud-config: %v", err)}
	}
	return nil
}

// checkNetworkData checks what cloud-init gets as its network-config: an object with a version, or below "network".
func checkNetworkData(text string) error {
	root, err := yamlRoot(text)
	object, _ := root.(*ast.MappingNode)
	if inner := valueOf(object, "network"); inner != nil {
		object, _ = inner.(*ast.MappingNode)
	}
	if err == nil && object == nil {
		err = errors.New("it is no object")
	}
	if version := valueOf(object, "version"); err == nil &&
		(version == nil || version.String() != "1" && version.String() != "2") {
		err = errors.New("it has no version; write version: 2, and then ethernets")
	}
	if err != nil {
		return &trivet.FieldError{Field: "spec.networkData", Problem: fmt.Sprintf("is no network-config of cloud-init: %v; "+
			"see docs/interfaces.md for spec.interfaces of the machine instead", err)}
	}
	return nil
}

// yamlRoot parses a text. Nothing is decoded, so that aliases are not followed. nil: it is empty.
func yamlRoot(text string) (ast.Node, error) {
	f, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		message, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		return nil, fmt.Errorf("%s", message)
	}
	for _, d := range f.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			if one, ok := d.Body.(*ast.MappingValueNode); ok {
				return ast.Mapping(one.GetToken(), false, one), nil
			}
			return d.Body, nil
		}
	}
	return nil, nil
}

// valueOf returns the value of a key; nil where there is none.
func valueOf(object *ast.MappingNode, key string) ast.Node {
	if object == nil {
		return nil
	}
	for _, v := range object.Values {
		if v.Key.String() == key {
			return v.Value
		}
	}
	return nil
}
