package api

import (
	"encoding/json"

	"github.com/trivet-project/trivet/internal/apitypes"
)

// maxAuditDepth bounds the path of a changed field: below it, the field that contains the change is named.
const maxAuditDepth = 5

// changedFields returns the paths of the fields in which two versions of a record differ, without their values. A list
// is one field.
func changedFields(was, is []byte) (paths []string) {
	var a, b map[string]any
	if json.Unmarshal(was, &a) != nil || json.Unmarshal(is, &b) != nil {
		return nil
	}
	for _, part := range []string{"labels", "annotations", "spec", "status"} {
		paths = append(paths, apitypes.ChangedFields(part, a[part], b[part], maxAuditDepth-1)...)
	}
	if len(paths) > maxAuditFields {
		paths = append(paths[:maxAuditFields], "and others")
	}
	return paths
}
