package provider

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/trivet-project/trivet/client"
)

// record is the resource of the records of one kind.
type record struct {
	kind
	client *client.Client
}

// The interfaces of the framework that the resource has.
var (
	_ resource.ResourceWithConfigure      = &record{}
	_ resource.ResourceWithImportState    = &record{}
	_ resource.ResourceWithModifyPlan     = &record{}
	_ resource.ResourceWithValidateConfig = &record{}
)

// How long a creation waits, where a resource does not say so, and how long a deletion is tried while other records
// refer to the record: some end soon after what they belong to.
const (
	createTimeout = 2 * time.Hour
	deleteTimeout = time.Minute
)

func newRecord(k kind) *record { return &record{kind: k} }

func (r *record) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + strings.ToLower(string(r.info.Kind))
}

// Configure receives the client. The provider is not configured yet while a configuration is validated.
func (r *record) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.client, _ = req.ProviderData.(*client.Client)
}

// records returns the records of the model's project.
func (r *record) records(m *model) client.Kind {
	return r.client.Kind(r.info).In(m.project.ValueString())
}

// op names an operation on a record in messages.
func (r *record) op(verb string, m *model) string {
	return verb + " " + strings.ToLower(string(r.info.Kind)) + " " + m.full()
}
